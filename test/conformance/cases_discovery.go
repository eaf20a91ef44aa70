package conformance

import (
	"encoding/json"
	"strings"
)

const (
	aggregatedV2      = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedV2beta1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	aggregatedProto   = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	openAPIProto      = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
)

// discoveryCases are the requests by which clients discover the API, and health checks.
func discoveryCases(*Env) []Case {
	var out []Case
	for _, path := range []string{"/api", "/apis"} {
		out = append(out,
			get("discovery/plain "+path, path).typed(typeJSON),
			get("discovery/plain protobuf "+path, path).accept(typeProto),
			get("discovery/13 aggregated "+path, path).accept(aggregatedV2).typed(aggregatedV2),
			get("discovery/13 as client-go asks "+path, path).accept(aggregatedV2+","+aggregatedV2beta1+",application/json").typed(aggregatedV2),
			get("discovery/13 without peers "+path, path).accept(aggregatedV2+";profile=nopeer"),
			either("discovery/13 protobuf "+path, path).accept(aggregatedProto),
			either("discovery/v2beta1 only "+path, path).accept(aggregatedV2beta1),
			get("discovery/v2beta1 or plain "+path, path).accept(aggregatedV2beta1+",application/json"),
			get("discovery/ETag matches "+path, path).accept(aggregatedV2).then(again(path, aggregatedV2)),
			get("discovery/ETag does not match "+path, path).accept(aggregatedV2).header("If-None-Match", `"nonsense"`),
			get("discovery/gzip "+path, path).accept(aggregatedV2).header("Accept-Encoding", "gzip"),
		)
	}
	for _, path := range []string{
		"/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/conf.example.com", "/apis/conf.example.com/v1", "/apis/conf.example.com/v1beta1",
		"/apis/apiextensions.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1", "/apis/events.k8s.io/v1", "/version", "/version/",
		"/openapi/v3", "/openapi/v2", "/openapi/v3/api/v1", "/openapi/v3/apis/conf.example.com/v1", "/openid/v1/jwks", "/.well-known/openid-configuration",
	} {
		out = append(out, either("discovery/"+path, path))
	}
	for _, version := range []string{"v1beta1", "v1alpha1", "v9"} {
		for _, page := range []string{"statusz", "flagz"} {
			kind := strings.ToUpper(page[:1]) + page[1:]
			out = append(out, either("discovery/structured "+page+" "+version, "/"+page).
				accept("application/json;g=config.k8s.io;v="+version+";as="+kind).mask(`"uptimeSeconds": \d+`))
		}
	}
	return append(out,
		get("discovery/protobuf resources", "/api/v1").accept(typeProto).typed(typeProto),
		get("discovery/51 OpenAPI v2 protobuf", "/openapi/v2").accept(openAPIProto),
		get("discovery/51 OpenAPI v2 protobuf, old spelling", "/openapi/v2").accept("application/com.github.proto-openapi.spec.v2@v1.0+protobuf"),
		get("discovery/51 OpenAPI v2, gzip", "/openapi/v2").header("Accept-Encoding", "gzip"),
		get("discovery/OpenAPI v2 ETag", "/openapi/v2").then(again("/openapi/v2", "")),
		get("discovery/50 OpenAPI v3 by hash", "/openapi/v3").then(openAPIByHash("")),
		get("discovery/50 OpenAPI v3 by wrong hash", "/openapi/v3").then(openAPIByHash("0")),
		fails("discovery/50 OpenAPI v3 of nothing", "/openapi/v3/apis/none.example.com/v1", 404),
		get("discovery/60 healthz", "/healthz").from(anonymous).contains("ok"),
		get("discovery/60 livez", "/livez").from(anonymous).contains("ok"),
		get("discovery/60 readyz", "/readyz").from(anonymous).contains("ok"),
		fails("discovery/60 api for nobody in particular", "/api", 403, `forbidden: User \"system:anonymous\" cannot get path \"/api\"`).from(anonymous),
		get("discovery/version for nobody in particular", "/version").from(anonymous),
		get("discovery/text statusz", "/statusz").ignoreBody(), // its delimiters are random
		get("discovery/text flagz", "/flagz").ignoreBody(),
		fails("discovery/JSON statusz", "/statusz", 406).accept(typeJSON),
		fails("discovery/statusz without rights", "/statusz", 403, `cannot get path \"/statusz\"`).from(alice),
		fails("discovery/flagz for nobody in particular", "/flagz", 403, `cannot get path \"/flagz\"`).from(anonymous),
		get("discovery/metrics", "/metrics").ignoreBody(),
		fails("discovery/metrics without rights", "/metrics", 403, `cannot get path \"/metrics\"`).from(alice),
		get("discovery/53 a custom resource is listed", "/apis").accept(aggregatedV2).contains("widgets"),
	)
}

// again repeats the request with If-None-Match set to the first response's ETag.
func again(path, accept string) func(Response) Request {
	return func(r Response) Request {
		return Request{Path: path, Accept: accept, Header: map[string]string{"If-None-Match": r.Header.Get("ETag")}}
	}
}

// openAPIByHash follows the URL that the index gives for apps/v1, with suffix appended to its hash.
func openAPIByHash(suffix string) func(Response) Request {
	return func(r Response) Request {
		var index struct {
			Paths map[string]struct {
				ServerRelativeURL string `json:"serverRelativeURL"`
			} `json:"paths"`
		}
		_ = json.Unmarshal(r.Body, &index) // if it fails, the empty path fails the comparison
		return Request{Path: index.Paths["apis/apps/v1"].ServerRelativeURL + suffix}
	}
}

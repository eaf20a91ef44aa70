package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// A Resource is a resource that can be listed and watched.
type Resource struct {
	Path   string // of the cluster-wide list
	Custom bool
}

// Resources discovers all resources that can be listed and watched, in every served version.
func (o *Oracle) Resources(context.Context) ([]Resource, error) {
	d, err := discovery.NewDiscoveryClientForConfig(o.Cluster.AdminConfig())
	if err != nil {
		return nil, err
	}
	_, lists, err := d.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	var out []Resource
	for _, l := range lists {
		prefix := "/apis/"
		if !strings.Contains(l.GroupVersion, "/") {
			prefix = "/api/"
		}
		for _, r := range l.APIResources {
			if listable(r) {
				out = append(out, Resource{
					Path:   prefix + l.GroupVersion + "/" + r.Name,
					Custom: strings.HasPrefix(l.GroupVersion, "conf.example.com/"),
				})
			}
		}
	}
	return out, nil
}

func listable(r metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch")
}

// everyResourceCases read each resource in each representation, because each has its own table
// printer.
func everyResourceCases(resources []Resource) []Case {
	var out []Case
	for _, r := range resources {
		at := r.Path + "?resourceVersion=0"
		proto := fresh("every/protobuf "+r.Path, at).accept(typeProto).typed(typeProto)
		if r.Custom {
			proto = fails("every/protobuf "+r.Path, at, 406).accept(typeProto)
		}
		out = append(out,
			fresh("every/json "+r.Path, at).typed(typeJSON),
			fresh("every/table "+r.Path, at).accept(typeTable).typed(typeJSON).contains(`"columnDefinitions"`),
			fresh("every/wide table "+r.Path, at+"&includeObject=Object").accept(typeKubectl),
			fresh("every/metadata "+r.Path, at).accept(typeMetaList).contains(`"kind":"PartialObjectMetadataList"`),
			fresh("every/protobuf metadata "+r.Path, at).accept(typeProtoMetaList).typed(typeProto),
			proto,
		)
	}
	return out
}

// negotiationCases cover the ways in which clients request representations.
func negotiationCases(env *Env) []Case {
	var out []Case
	newest := func(path string) string {
		return fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", path, env.Versions.Seeded)
	}
	for _, accept := range []string{
		"*/*", "application/*", "application/json, */*", "text/html, application/json;q=0.9, */*;q=0.1",
		"application/json;q=0.1, application/yaml", "application/yaml;q=0.1, application/json;q=0.2", "application/json; charset=utf-8",
		"application/vnd.kubernetes.protobuf, */*", "application/json;pretty=1", "APPLICATION/JSON", "application/json;stream=watch",
		"application/json;as=Table;v=v1;g=meta.k8s.io;profile=x", "application/json;as=Table;v=v1beta1;g=meta.k8s.io",
		typeKubectl, typeMetaList, typeMetaList + ",application/json", typeMeta + ",application/json",
		"application/json;as=Nonsense;v=v1;g=meta.k8s.io,application/json", "application/json;as=Table;v=v9;g=meta.k8s.io,application/json",
		"application/yaml;as=Table;v=v1;g=meta.k8s.io", "application/yaml;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
		"application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
		"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io",
		"image/png, application/json", ", application/json",
	} {
		out = append(out,
			either("negotiation/exact list "+accept, newest(podsPath)).accept(accept),
			either("negotiation/list "+accept, podsPath+"?resourceVersion=0").accept(accept),
			either("negotiation/custom list "+accept, widgetsPath+"?resourceVersion=0").accept(accept),
		)
	}
	for _, accept := range []string{
		"image/png", "text/html", typeMeta, "application/json;as=Nonsense;v=v1;g=meta.k8s.io", "nonsense",
		"application/json;as=Table;v=v9;g=meta.k8s.io", "application/json;as=Table;v=v1;g=wrong.k8s.io", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
		"application/json;q=0", "application/*;q=0.5;as=Table", "*/*;as=Table;v=v1;g=meta.k8s.io",
	} {
		out = append(out, either("negotiation/406 list "+accept, podsPath+"?resourceVersion=0").accept(accept),
			either("negotiation/406 custom list "+accept, widgetsPath+"?resourceVersion=0").accept(accept),
			either("negotiation/406 object "+accept, podPath+"?resourceVersion=0").accept(accept),
			either("negotiation/406 custom object "+accept, widgetPath+"?resourceVersion=0").accept(accept))
	}
	for _, value := range []string{"spec", "metadata.managedFields+spec", ""} {
		out = append(out, either("negotiation/drop of something else: "+value, podsPath+"?resourceVersion=0").accept("application/json;drop="+value),
			either("negotiation/drop of something else in protobuf: "+value, podPath+"?resourceVersion=0").accept("application/vnd.kubernetes.protobuf;drop="+value))
	}
	for _, include := range []string{"None", "Metadata", "Object", "", "none", "Everything"} {
		q := "?resourceVersion=0&includeObject=" + include
		out = append(out,
			either("negotiation/23 table with object "+include, podsPath+q).accept(typeTable),
			either("negotiation/23 table of one with object "+include, podPath+q).accept(typeTable),
			either("negotiation/23 custom table with object "+include, widgetsPath+q).accept(typeTable),
			either("negotiation/23 table v1beta1 with object "+include, widgetsPath+q).accept("application/json;as=Table;v=v1beta1;g=meta.k8s.io"),
			either("negotiation/includeObject without a table "+include, podsPath+q),
		)
	}
	return append(out,
		fresh("negotiation/20 protobuf list", podsPath+"?resourceVersion=0").accept(typeProto).typed(typeProto).contains("k8s\x00"),
		get("negotiation/20 protobuf list, exact", newest(allPods)).accept(typeProto),
		get("negotiation/20 protobuf list, chunked", allPods+"?limit=10").accept(typeProto),
		fresh("negotiation/21 custom list takes JSON", widgetsPath+"?resourceVersion=0").accept(typeProto+",application/json").typed(typeJSON),
		fails("negotiation/custom list has no protobuf", widgetsPath+"?resourceVersion=0", 406, "only the following media types are accepted").accept(typeProto),
		fresh("negotiation/22 protobuf metadata of a custom list", widgetsPath+"?resourceVersion=0").accept(typeProtoMetaList).typed(typeProto),
		fresh("negotiation/22 as the garbage collector asks", allWidgets+"?resourceVersion=0").accept(typeProtoMetaList+","+typeMetaList+",application/json").typed(typeProto),
		fails("negotiation/metadata object of a list", podsPath+"?resourceVersion=0", 406, "but the requested object is a list").accept(typeMeta),
		either("negotiation/metadata list of an object", podPath+"?resourceVersion=0").accept(typeMetaList),
		fresh("negotiation/default columns", gadgets+"?resourceVersion=0").accept(typeTable).contains(`"name":"Age"`),
		fresh("negotiation/default columns of one", gadgets+"/one?resourceVersion=0").accept(typeTable).contains(`"name":"Age"`),
		fresh("negotiation/default columns with objects", gadgets+"?resourceVersion=0&includeObject=Object").accept(typeTable),
		fresh("negotiation/23 table, pretty", widgetsPath+"?resourceVersion=0&pretty=true").accept(typeTable),
		fresh("negotiation/several Accept lines are one", widgetsPath+"?resourceVersion=0").accept("application/yaml;q=0.1").header("Accept", "application/yaml;q=0.1, application/json"),
	)
}

// either is a read that may succeed or fail, as at the oracle.
func either(name, path string) Case {
	c := fresh(name, path)
	c.Want = anyStatus
	return c
}

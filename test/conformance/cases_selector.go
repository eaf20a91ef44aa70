package conformance

import (
	"fmt"
	"net/url"
)

// selectorCases read with label and field selectors.
func selectorCases(env *Env) []Case {
	var out []Case
	for _, selector := range []string{
		"app=web", "app==web", "app!=web", "app in (web,db)", "app in (db)", "app notin (web)", "tier", "!tier",
		"tier=front,app=db", "tier in (front),app!=web", "round>1", "round<3", "round>1,round<4", "app=none", "app=",
		" app = web , tier = back ", "app in (web), tier notin (back)", "tier!=", "app=web,app=db", "tier=moved",
	} {
		q := "?resourceVersion=0&labelSelector=" + url.QueryEscape(selector)
		out = append(out,
			fresh("selector/label "+selector, allPods+q),
			fresh("selector/label in a namespace "+selector, podsPath+q),
		)
	}
	out = append(out,
		get("selector/label, forwarded", allPods+"?labelSelector=tier%3Dmoved").contains("web-00"),
		fresh("selector/label, table", allPods+"?resourceVersion=0&labelSelector=tier%3Dmoved").accept(typeTable),
		fresh("selector/label, protobuf", allPods+"?resourceVersion=0&labelSelector=tier%3Dmoved").accept(typeProto),
		fresh("selector/label, metadata", allPods+"?resourceVersion=0&labelSelector=tier%3Dmoved").accept(typeMetaList),
		get("selector/label, exact", fmt.Sprintf("%s?labelSelector=tier%%3Dmoved&resourceVersion=%d&resourceVersionMatch=Exact", allPods, env.Versions.Middle)).contains(`"items":[]`),
		fresh("selector/label, custom", allWidgets+"?resourceVersion=0&labelSelector=app%3Dweb").contains("red"),
	)
	for _, f := range fieldSelectors {
		for _, selector := range f.selectors {
			q := "?resourceVersion=0&fieldSelector=" + url.QueryEscape(selector)
			out = append(out, fresh(fmt.Sprintf("selector/%sfield %s %s", f.number, selector, f.path), f.path+q))
		}
	}
	out = append(out,
		fresh("selector/56 field and label", allPods+"?resourceVersion=0&labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3Dnode-3").contains("web-02"),
		fresh("selector/56 field, protobuf", allPods+"?resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-3").accept(typeProto),
		fresh("selector/56 field, table", allPods+"?resourceVersion=0&fieldSelector=spec.nodeName%3Dnode-3").accept(typeTable),
		get("selector/56 field, forwarded", allPods+"?fieldSelector=status.phase%3DFailed"),
	)
	return append(out, unsupportedFieldCases()...)
}

// fieldSelectors are selectors by the name and namespace, which every resource supports, and by the
// fields that only some resources support.
var fieldSelectors = []struct {
	number    string
	path      string
	selectors []string
}{
	{"55 ", podsPath, []string{"metadata.name=web-05", "metadata.name=none", "metadata.name!=web-05"}},
	{"55 ", allPods, []string{"metadata.name=web-05", "metadata.name=web-05,metadata.namespace=alpha", "metadata.namespace=beta", "metadata.namespace!=alpha"}},
	{"55 ", gadgets, []string{"metadata.name=one"}},
	{"55 ", allWidgets, []string{"metadata.name=red", "metadata.namespace=beta"}},
	{"56 ", allPods, []string{
		"spec.nodeName=node-1", "spec.nodeName=", "spec.nodeName!=node-1", "spec.host=node-1", "status.phase=Running",
		"status.phase!=Running,status.phase!=Succeeded", "spec.nodeName=node-2,status.phase=Pending", "spec.nodeName==node-1",
		"spec.restartPolicy=Never", "spec.schedulerName=custom", "spec.serviceAccountName=builder",
		"spec.hostNetwork=true", "spec.hostNetwork=false", "status.podIP=10.1.0.12", "status.podIPs=10.1.0.12", "status.nominatedNodeName=node-1",
		"spec.nodeName=node-1,", `metadata.name=a\,b`,
	}},
	{"", "/api/v1/nodes", []string{"spec.unschedulable=true", "spec.unschedulable=false", "metadata.name=node-2"}},
	{"", "/api/v1/events", []string{
		"involvedObject.name=web-00", "involvedObject.kind=Pod,involvedObject.namespace=alpha", "reason=Scheduled", "type!=Normal",
		"source=scheduler", "reportingComponent=example.com/kubelet", "involvedObject.fieldPath=spec.containers{c}",
	}},
	{"", "/apis/events.k8s.io/v1/events", []string{"regarding.name=web-01", "reportingController=example.com/kubelet", "type=Warning"}},
	{"", "/api/v1/secrets", []string{"type=Opaque", "type!=Opaque"}},
	{"", "/api/v1/namespaces", []string{"status.phase=Active", "metadata.name=alpha"}},
	{"", "/api/v1/services", []string{"spec.type=NodePort", "spec.clusterIP=None"}},
	{"", "/api/v1/replicationcontrollers", []string{"status.replicas=2"}},
	{"", "/apis/batch/v1/jobs", []string{"status.successful=0"}},
	{"", "/apis/certificates.k8s.io/v1/certificatesigningrequests", []string{"spec.signerName=example.com/signer"}},
	{"", allWidgets, []string{"spec.color=red", "spec.size=3", "spec.color!=red", "spec.color=grey", "spec.size=3,spec.color=blue"}},
}

func unsupportedFieldCases() []Case {
	var out []Case
	for _, x := range []struct{ path, selector, text string }{
		{allPods, " spec.nodeName = node-1 ", "field label not supported"},
		{allPods, "spec.foo=bar", "field label not supported"},
		{allPods, "spec.nodeName=a,foo=b", "field label not supported"},
		{"/api/v1/nodes", "metadata.namespace=x", "field label not supported"},
		{"/api/v1/events", "regarding.name=x", ""},
		{"/api/v1/configmaps", "data=x", "is not a known field selector"},
		{"/apis/apps/v1/deployments", "spec.replicas=1", "is not a known field selector"},
		{allWidgets, "spec.built=x", ""},
		{allWidgets, ".spec.color=x", ""},
		{"/apis/conf.example.com/v1beta1/widgets", "spec.color=red", ""},
		{gadgets, "metadata.namespace=x", ""},
	} {
		q := "fieldSelector=" + url.QueryEscape(x.selector)
		name := x.selector + " " + x.path
		if x.text == "" { // the oracle's text decides
			x.text = "{"
		}
		c := fresh("selector/57 unsupported field, cached "+name, x.path+"?resourceVersion=0&"+q).contains(x.text)
		c = c.status(400)
		out = append(out, c)
		w := c
		w.Name, w.Path = "selector/57 unsupported field, watch "+name, x.path+"?watch=true&timeoutSeconds=1&"+q
		out = append(out, w)
	}
	return out
}

package rbac

// builtin returns the built-in resources of kube-apiserver 1.37 that are served by default and
// support list and watch. test/deploy/rbac compares them with its discovery.
func builtin() map[string][]string {
	return map[string][]string{
		"": {
			"configmaps", "endpoints", "events", "limitranges", "namespaces", "nodes", "persistentvolumeclaims",
			"persistentvolumes", "pods", "podtemplates", "replicationcontrollers", "resourcequotas", "secrets",
			"serviceaccounts", "services",
		},
		"admissionregistration.k8s.io": {
			"mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "mutatingwebhookconfigurations",
			"validatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingwebhookconfigurations",
		},
		"apiextensions.k8s.io":         {"customresourcedefinitions"},
		"apiregistration.k8s.io":       {"apiservices"},
		"apps":                         {"controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"},
		"autoscaling":                  {"horizontalpodautoscalers"},
		"batch":                        {"cronjobs", "jobs"},
		"certificates.k8s.io":          {"certificatesigningrequests", "clustertrustbundles", "podcertificaterequests"},
		"coordination.k8s.io":          {"leases"},
		"discovery.k8s.io":             {"endpointslices"},
		"events.k8s.io":                {"events"},
		"flowcontrol.apiserver.k8s.io": {"flowschemas", "prioritylevelconfigurations"},
		"networking.k8s.io":            {"ingressclasses", "ingresses", "ipaddresses", "networkpolicies", "servicecidrs"},
		"node.k8s.io":                  {"runtimeclasses"},
		"policy":                       {"poddisruptionbudgets"},
		"rbac.authorization.k8s.io":    {"clusterrolebindings", "clusterroles", "rolebindings", "roles"},
		"resource.k8s.io":              {"deviceclasses", "devicetaintrules", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
		"scheduling.k8s.io":            {"priorityclasses"},
		"storage.k8s.io": {
			"csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments", "volumeattributesclasses",
		},
		"storagemigration.k8s.io": {"storageversionmigrations"},
	}
}

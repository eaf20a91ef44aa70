package console

// Question describes the request to explain.
type Question struct {
	Cluster   string   `json:"cluster"`
	Method    string   `json:"method"`
	Path      string   `json:"path"` // with query
	User      string   `json:"user"`
	Groups    []string `json:"groups"`
	UserAgent string   `json:"userAgent"`
	Accept    string   `json:"accept"`
}

// Explanation describes how a request would be served now. It is based on the state in memory;
// nothing is sent.
type Explanation struct {
	Request ExplainedRequest `json:"request"`
	// Route is cached, revalidated, collapsed, forwarded, gateway, refused or unknown.
	Route      string               `json:"route"`
	Reason     string               `json:"reason,omitempty"`
	Text       string               `json:"text"`
	Permission ExplainedPermission  `json:"permission"`
	Visible    *ExplainedVisible    `json:"visible,omitempty"`
	Settings   []ExplainedSetting   `json:"settings"`
	Collection *ExplainedCollection `json:"collection,omitempty"`
	Cost       ExplainedCost        `json:"cost"`
	Steps      []ExplainedStep      `json:"steps"`
}

// ExplainedRequest is the parsed request.
type ExplainedRequest struct {
	Verb        string `json:"verb"`
	IsResource  bool   `json:"isResource"`
	Group       string `json:"group"`
	Version     string `json:"version"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
}

// ExplainedPermission is the user's permission, if it is known.
type ExplainedPermission struct {
	Known   bool   `json:"known"`
	Allowed bool   `json:"allowed"`
	Text    string `json:"text"`
}

// ExplainedVisible describes the namespaces that a list of all namespaces would show.
type ExplainedVisible struct {
	// Known reports whether Namespaces, their number, is known.
	Known      bool   `json:"known"`
	Namespaces int    `json:"namespaces"`
	Rule       string `json:"rule"`
	Text       string `json:"text"`
}

// ExplainedSetting is a setting that applies to the request. Rule is the rule that sets it, "" for
// the default.
type ExplainedSetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Rule  string `json:"rule,omitempty"`
}

// ExplainedCollection is the collection that would be read.
type ExplainedCollection struct {
	State   string `json:"state"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

// ExplainedCost is the load that the request would put on the upstream.
type ExplainedCost struct {
	Text             string `json:"text"`
	UpstreamRequests int    `json:"upstreamRequests"`
}

// ExplainedStep is a step in serving the request.
type ExplainedStep struct {
	Step string `json:"step"`
	Text string `json:"text"`
}

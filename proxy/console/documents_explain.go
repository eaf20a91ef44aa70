package console

// Question is a request that is to be explained.
type Question struct {
	Cluster   string   `json:"cluster"`
	Method    string   `json:"method"`
	Path      string   `json:"path"` // with its query
	User      string   `json:"user"`
	Groups    []string `json:"groups"`
	UserAgent string   `json:"userAgent"`
	Accept    string   `json:"accept"`
}

// Explanation says what would become of a request now. It is found out without sending
// anything, from what is in memory.
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

// ExplainedRequest is how the request is read.
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

// ExplainedPermission is what is known of the right to it.
type ExplainedPermission struct {
	Known   bool   `json:"known"`
	Allowed bool   `json:"allowed"`
	Text    string `json:"text"`
}

// ExplainedVisible is which namespaces would be shown of all.
type ExplainedVisible struct {
	// Known tells that Namespaces is how many there are.
	Known      bool   `json:"known"`
	Namespaces int    `json:"namespaces"`
	Rule       string `json:"rule"`
	Text       string `json:"text"`
}

// ExplainedSetting is what holds for the request. Rule is the one that says it, "" for none.
type ExplainedSetting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Rule  string `json:"rule,omitempty"`
}

// ExplainedCollection is what would be read.
type ExplainedCollection struct {
	State   string `json:"state"`
	Objects int    `json:"objects"`
	Bytes   int64  `json:"bytes"`
}

// ExplainedCost is what the upstream would have to do.
type ExplainedCost struct {
	Text             string `json:"text"`
	UpstreamRequests int    `json:"upstreamRequests"`
}

// ExplainedStep is one that the request takes on its way.
type ExplainedStep struct {
	Step string `json:"step"`
	Text string `json:"text"`
}

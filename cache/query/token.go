package query

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Token is the continue token of a list with a query. Other servers reject it: they would continue
// elsewhere.
type Token struct {
	// ResourceVersion is the version that all pages show.
	ResourceVersion uint64 `json:"rv"`
	// Offset is how many objects of the list precede the page.
	Offset int `json:"offset"`
	// At is the time of the first page in seconds since 1970, if the query is Timed.
	At int64 `json:"at,omitempty"`
	// Within is that of api.ContinueToken.
	Within string `json:"within,omitempty"`
}

// tokenVersion identifies the format. kube-apiserver's tokens have another.
const tokenVersion = "kubeweir.io/query/v1"

type wireToken struct {
	Version string `json:"v"`
	Token
	// List is a hash of the list that the token continues.
	List string `json:"list"`
}

// Encode returns the token for the list that selected (its namespace and selectors) and q describe.
func (t Token) Encode(q *Query, selected string) string {
	data, err := json.Marshal(wireToken{tokenVersion, t, q.hash(selected)})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// Decode parses a token of the same list. The error is a 400.
func (q *Query) Decode(token, selected string) (Token, error) {
	data, err := base64.RawURLEncoding.DecodeString(token)
	var wire wireToken
	if err == nil {
		err = json.Unmarshal(data, &wire)
	}
	switch {
	case err != nil || wire.Version != tokenVersion || wire.ResourceVersion == 0 || wire.Offset < 0:
		return Token{}, apierrors.NewBadRequest("parameter continue: it is not that of a list with sortBy, where, offset, fields or countBy: begin such a list without it")
	case wire.List != q.hash(selected):
		return Token{}, apierrors.NewBadRequest("parameter continue: it goes on with another list: repeat its sortBy, where and selectors")
	case q.Offset > 0:
		return Token{}, apierrors.NewBadRequest("parameter offset: with continue it has no meaning: leave one of them out")
	}
	return wire.Token, nil
}

// hash returns a hash of everything that determines the objects and their order.
func (q *Query) hash(selected string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(selected + "\x00" + q.order))
	return strconv.FormatUint(h.Sum64(), 36)
}

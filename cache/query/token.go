package query

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Token says where the next page of a list with a query begins. Other servers do not take
// it: they would begin it somewhere else.
type Token struct {
	// ResourceVersion is the version that all pages show.
	ResourceVersion uint64
	// Offset is how many objects of the list come before the page.
	Offset int
	// At is when its first page was asked for, in seconds since 1970, if the query is Timed.
	At int64
	// Within is that of an api.ContinueToken.
	Within string
}

// tokenVersion names the format of tokens; that of kube-apiserver's is another.
const tokenVersion = "kubeweir.io/query/v1"

type wireToken struct {
	Version         string `json:"v"`
	ResourceVersion uint64 `json:"rv"`
	Offset          int    `json:"offset"`
	At              int64  `json:"at,omitempty"`
	Within          string `json:"within,omitempty"`
	// List is a hash of what list it goes on with.
	List string `json:"list"`
}

// Encode writes a token for the list that selected (its namespace and selectors) and q
// describe.
func (t Token) Encode(q *Query, selected string) string {
	data, err := json.Marshal(wireToken{tokenVersion, t.ResourceVersion, t.Offset, t.At, t.Within, q.hash(selected)})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

// Decode reads a token of the same list. The error is a 400.
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
	return Token{wire.ResourceVersion, wire.Offset, wire.At, wire.Within}, nil
}

// hash is that of what decides which objects come where.
func (q *Query) hash(selected string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(selected + "\x00" + q.order))
	return strconv.FormatUint(h.Sum64(), 36)
}

package shard

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/sharding"
)

func shardRange(field, first, end string) string {
	return fmt.Sprintf("shardRange(object.metadata.%s, '%s', '%s')", field, first, end)
}

func TestHashMatchesLibrary(t *testing.T) {
	for _, value := range []string{"", "a", "default", "5f0c1f6e-0a0f-4f0e-9d52-6f7c1f6e0a0f", "ü"} {
		if got := fmt.Sprintf("%016x", Hash(value)); got != apisharding.HashField(value) {
			t.Errorf("%q: %s", value, got)
		}
	}
}

// TestSelectorMatchesLikeLibrary compares random selectors with one or more ranges, mostly at
// their ends.
func TestSelectorMatchesLikeLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	bound := func(uids []string) string {
		switch random.IntN(6) {
		case 0:
			return "0x0000000000000000"
		case 1:
			return "0x10000000000000000"
		case 2:
			return "0xffffffffffffffff"
		case 3:
			return "0x" + apisharding.HashField(uids[random.IntN(len(uids))])
		}
		return fmt.Sprintf("0x%016x", random.Uint64())
	}
	for range 500 {
		uids := make([]string, 20)
		for i := range uids {
			uids[i] = fmt.Sprintf("uid-%d", random.Uint32())
		}
		field := []string{"uid", "namespace"}[random.IntN(2)]
		var parts []string
		for range 1 + random.IntN(4) {
			a, b := bound(uids), bound(uids)
			if apisharding.HexLess(b, a) {
				a, b = b, a
			}
			if a != b {
				parts = append(parts, shardRange(field, a, b))
			}
		}
		if len(parts) == 0 {
			continue
		}
		text := strings.Join(parts, " || ")
		want, err := sharding.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(text)
		if err != nil || got.String() != want.String() {
			t.Fatalf("%s: %v, %v", text, got, err)
		}
		for _, uid := range uids {
			matches, err := want.Matches(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: uid}})
			if err != nil || got.Has(Hash(uid)) != matches {
				t.Fatalf("%s: %s (%x): %v, want %v, %v", text, uid, Hash(uid), got.Has(Hash(uid)), matches, err)
			}
		}
		for i, r := range got.Ranges() {
			if r.First > r.Last || i > 0 && r.First <= got.Ranges()[i-1].Last+1 {
				t.Fatalf("%s: ranges %x", text, got.Ranges())
			}
		}
	}
}

func TestKeys(t *testing.T) {
	for field, want := range map[string]Key{"uid": UID, "namespace": Namespace} {
		s, err := Parse("  " + shardRange(field, "0x0000000000000000", "0x4000000000000000") + " ")
		if err != nil || s.Key() != want || s.Part() != 0.25 || s.String() != shardRange(field, "0x0000000000000000", "0x4000000000000000") {
			t.Errorf("%s: %+v, %v", field, s, err)
		}
	}
}

// TestInvalid: the errors are those of kube-apiserver's parser, with its prefix.
func TestInvalid(t *testing.T) {
	half := shardRange("uid", "0x0000000000000000", "0x8000000000000000")
	for _, text := range []string{
		"", " ", "x", "1", "shardRange", "shardRange()", "shardRange(object.metadata.uid, '0x0', '0x8')", half + " ||", half + " && " + half, "!" + half,
		half + " || " + shardRange("namespace", "0x0000000000000000", "0x8000000000000000"), shardRange("name", "0x0000000000000000", "0x8000000000000000"),
		shardRange("uid", "0x8000000000000000", "0x8000000000000000"), shardRange("uid", "0x0000000000000000", "0x20000000000000000"),
		shardRange("uid", "0X0000000000000000", "0x8000000000000000"), shardRange("uid", "0x000000000000000A", "0x8000000000000000"), "shardRange(object.metadata.uid, 0, 8)",
	} {
		_, want := sharding.Parse(text)
		_, err := Parse(text)
		if want == nil || err == nil || err.Error() != "invalid shard selector: "+want.Error() {
			t.Errorf("%q: %v, want %v", text, err, want)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := shardRange("uid", "0x0000000000000000", "0x8000000000000000")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	for b.Loop() {
		Hash("5f0c1f6e-0a0f-4f0e-9d52-6f7c1f6e0a0f")
	}
}

package pieces

import (
	"bytes"
	"compress/gzip"
	"hash/crc32"
	"io"
	"testing"
)

func FuzzCombineCRC(f *testing.F) {
	f.Add([]byte("abc"), []byte("defg"))
	f.Add([]byte{}, []byte{0})
	f.Add([]byte("x"), []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		want := crc32.ChecksumIEEE(append(bytes.Clone(a), b...))
		if got := CombineCRC(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), ShiftCRC(int64(len(b)))); got != want {
			t.Errorf("%08x, want %08x", got, want)
		}
	})
}

func TestCombineCRCOfLongTexts(t *testing.T) {
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MiB
	for _, at := range []int{0, 1, 65535, 65536, 1 << 20, len(text) - 1, len(text)} {
		a, b := text[:at], text[at:]
		if got, want := CombineCRC(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), ShiftCRC(int64(len(b)))), crc32.ChecksumIEEE(text); got != want {
			t.Errorf("at %d: %08x, want %08x", at, got, want)
		}
	}
}

func TestAppendStored(t *testing.T) {
	for _, n := range []int{0, 1, MaxStored - 1, MaxStored, MaxStored + 1, 3 * MaxStored} {
		text := bytes.Repeat([]byte("x"), n)
		body := AppendStored([]byte(GzipHeader), text, true)
		body = append(body, 0, 0, 0, 0, 0, 0, 0, 0)
		crc := crc32.ChecksumIEEE(text)
		copy(body[len(body)-8:], []byte{byte(crc), byte(crc >> 8), byte(crc >> 16), byte(crc >> 24), byte(n), byte(n >> 8), byte(n >> 16), 0})
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
}

package transcode

import (
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubeweir/kubeweir/internal/api"
	"github.com/kubeweir/kubeweir/internal/encoding/cbor"
)

// maxTranscodedWatches is how many watches at a time are, which users share. Watches
// in CBOR are forwarded rarely: the cache has most of them.
const maxTranscodedWatches = 32

// eventInCBOR returns an event in CBOR.
func (f *Transcoder) eventInCBOR(line []byte) ([]byte, error) {
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return nil, err
	}
	if event.Type == "" || event.Object == nil {
		return nil, errors.New("it lacks its type or its object")
	}
	frame, err := cbor.Append(cbor.AppendFrameHead(nil, event.Type), event.Object, shapeOf(event.Object))
	if err == nil {
		f.count(watchEvent, nil)
	}
	return frame, err
}

// failedInCBOR returns the last event of a watch that cannot be encoded in CBOR.
func (f *Transcoder) failedInCBOR(err error) []byte {
	f.count(watchEvent, err)
	err = apierrors.NewInternalError(fmt.Errorf("giving the upstream's event in CBOR: %w", err))
	text := api.EncodeStatus(api.StatusOf(err), api.StatusJSON)
	frame, encodeErr := cbor.Append(cbor.AppendFrameHead(nil, api.Error.String()), text, cbor.Untyped)
	if encodeErr != nil {
		return nil
	}
	return frame
}

package testapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeweir/kubeweir/internal/api"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 64 << 10

// API is the test API of a server.
type API struct {
	Snapshots *Snapshots
	Faults    *Faults
	// Clock is the clock by which the store expires objects, nil if it has none that can be set.
	Clock *Clock
	// Rewind ends all watches of the cache with 410.
	Rewind func()
}

// Handler serves the API under api.TestAPIPath.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			switch err := do(w, r); {
			case errors.Is(err, errNoSnapshot):
				http.Error(w, err.Error(), http.StatusNotFound)
			case errors.Is(err, errInvalidFault), errors.Is(err, errInvalidAdvance), errors.Is(err, errNoClock):
				http.Error(w, err.Error(), http.StatusBadRequest)
			case errors.Is(err, errTooMany):
				http.Error(w, err.Error(), http.StatusInsufficientStorage)
			case err != nil:
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	// A client that leaves must not leave half of the objects behind.
	uninterrupted := func(r *http.Request) (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.WithoutCancel(r.Context()), restoreTimeout)
	}
	handle("POST "+api.TestAPIPath+"reset", func(_ http.ResponseWriter, r *http.Request) error {
		ctx, cancel := uninterrupted(r)
		defer cancel()
		a.Faults.Clear()
		if err := a.Snapshots.Restore(ctx, Initial); err != nil {
			return err
		}
		if err := a.Snapshots.Forget(ctx); err != nil {
			return err
		}
		a.Rewind()
		return nil
	})
	handle("PUT "+api.TestAPIPath+"snapshots/{name}", func(_ http.ResponseWriter, r *http.Request) error {
		return a.Snapshots.Save(r.Context(), r.PathValue("name"))
	})
	handle("POST "+api.TestAPIPath+"snapshots/{name}/restore", func(_ http.ResponseWriter, r *http.Request) error {
		ctx, cancel := uninterrupted(r)
		defer cancel()
		return a.Snapshots.Restore(ctx, r.PathValue("name"))
	})
	handle("DELETE "+api.TestAPIPath+"snapshots/{name}", func(_ http.ResponseWriter, r *http.Request) error {
		return a.Snapshots.Delete(r.PathValue("name"))
	})
	handle("POST "+api.TestAPIPath+"faults", func(w http.ResponseWriter, r *http.Request) error {
		var fault Fault
		err := decode(w, r, &fault, `{"verb":"update","code":409}`)
		if err == nil {
			err = a.Faults.Add(&fault)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errInvalidFault, err)
		}
		return nil
	})
	handle("GET "+api.TestAPIPath+"faults", func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(a.Faults.List())
	})
	handle("DELETE "+api.TestAPIPath+"faults", func(http.ResponseWriter, *http.Request) error {
		a.Faults.Clear()
		return nil
	})
	handle("POST "+api.TestAPIPath+"watches/end", func(http.ResponseWriter, *http.Request) error {
		a.Faults.EndWatches()
		return nil
	})
	handle("POST "+api.TestAPIPath+"clock", func(w http.ResponseWriter, r *http.Request) error {
		var change struct {
			Advance metav1.Duration `json:"advance"`
		}
		if a.Clock == nil {
			return errNoClock
		}
		if err := decode(w, r, &change, `{"advance":"1h"}`); err != nil {
			return fmt.Errorf("%w: %w", errInvalidAdvance, err)
		}
		return a.Clock.Advance(change.Advance.Duration)
	})
	return mux
}

// decode reads the JSON body of a request into v. An error shows the example if there is no body.
func decode(w http.ResponseWriter, r *http.Request, v any, example string) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	switch err := d.Decode(v); {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the body is empty; send a JSON object such as %s", example)
	case err != nil:
		return err
	case d.More():
		return errors.New("the body has more than one JSON object")
	}
	return nil
}

// restoreTimeout bounds a restore.
const restoreTimeout = time.Minute

var (
	// errInvalidFault is the error of a fault that is wrong.
	errInvalidFault = errors.New("fault not added")
	errNoClock      = errors.New("the clock cannot be advanced: the objects are in etcd, which expires them by a clock of its own")
)

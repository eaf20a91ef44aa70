package testapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/kubeweir/kubeweir/internal/api"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 64 << 10

// API is the test API of a server.
type API struct {
	Snapshots *Snapshots
	Faults    *Faults
}

// Handler serves the API under api.TestAPIPath.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(w http.ResponseWriter, r *http.Request) error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			switch err := do(w, r); {
			case errors.Is(err, errNoSnapshot):
				http.Error(w, err.Error(), http.StatusNotFound)
			case errors.Is(err, errInvalidFault):
				http.Error(w, err.Error(), http.StatusBadRequest)
			case errors.Is(err, errTooMany):
				http.Error(w, err.Error(), http.StatusInsufficientStorage)
			case err != nil:
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	restore := func(r *http.Request, name string) error {
		// A client that leaves must not leave half of the objects behind.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restoreTimeout)
		defer cancel()
		return a.Snapshots.Restore(ctx, name)
	}
	handle("POST "+api.TestAPIPath+"reset", func(_ http.ResponseWriter, r *http.Request) error {
		a.Faults.Clear()
		return restore(r, Initial)
	})
	handle("PUT "+api.TestAPIPath+"snapshots/{name}", func(_ http.ResponseWriter, r *http.Request) error {
		return a.Snapshots.Save(r.Context(), r.PathValue("name"))
	})
	handle("POST "+api.TestAPIPath+"snapshots/{name}/restore", func(_ http.ResponseWriter, r *http.Request) error {
		return restore(r, r.PathValue("name"))
	})
	handle("DELETE "+api.TestAPIPath+"snapshots/{name}", func(_ http.ResponseWriter, r *http.Request) error {
		return a.Snapshots.Delete(r.PathValue("name"))
	})
	handle("POST "+api.TestAPIPath+"faults", func(w http.ResponseWriter, r *http.Request) error {
		var fault Fault
		d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		d.DisallowUnknownFields()
		if err := d.Decode(&fault); errors.Is(err, io.EOF) {
			return invalidFault(errors.New(`the body is empty; send a JSON object such as {"verb":"update","code":409}`))
		} else if err != nil {
			return invalidFault(err)
		}
		if err := a.Faults.Add(&fault); err != nil {
			return invalidFault(err)
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
	return mux
}

// restoreTimeout bounds a restore.
const restoreTimeout = time.Minute

// errInvalidFault is the error of a request that is wrong.
var errInvalidFault = errors.New("fault not added")

func invalidFault(err error) error { return fmt.Errorf("%w: %w", errInvalidFault, err) }

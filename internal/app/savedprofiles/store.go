// Package savedprofiles saves the ClusterProfiles that a hub had last, so that a gateway that starts
// while the hub is unreachable knows its clusters.
package savedprofiles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/internal/clusterprofile"
)

const (
	recordName = "clusterprofiles"
	// saveTimeout bounds one save.
	saveTimeout = 5 * time.Second
)

// Store saves profiles in a state directory. Load and Run may run at the same time.
type Store struct {
	dir     *state.Dir
	of      string
	maxAge  time.Duration
	log     *slog.Logger
	pending chan []clusterprofile.Profile // holds the list that is to be saved
}

// record is the record in the state directory.
type record struct {
	Of       string          `json:"of"`
	At       time.Time       `json:"at"`
	Profiles json.RawMessage `json:"profiles"`
}

// New returns a Store of the profiles of a hub, namespace and selector, which of identifies. Profiles
// above maxAge are not loaded; 0 means no limit.
func New(dir *state.Dir, of string, maxAge time.Duration, log *slog.Logger) *Store {
	return &Store{dir: dir, of: of, maxAge: maxAge, log: log, pending: make(chan []clusterprofile.Profile, 1)}
}

// Load returns the profiles that an earlier process saved; nil if none can be used.
func (s *Store) Load() []clusterprofile.Profile {
	list, err := s.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("saved ClusterProfiles dropped", "reason", err)
	}
	return list
}

func (s *Store) read() ([]clusterprofile.Profile, error) {
	content, err := s.dir.LoadRecord(recordName)
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, err
	}
	switch age := time.Since(r.At); {
	case r.Of != s.of:
		return nil, errors.New("they are of another hub, namespace or selector")
	case s.maxAge > 0 && age > s.maxAge:
		return nil, fmt.Errorf("they are %s old", age.Round(time.Second))
	}
	return clusterprofile.Decode(r.Profiles)
}

// Save has Run save list. Calls must not be concurrent. A nil *Store saves nothing.
func (s *Store) Save(list []clusterprofile.Profile) {
	if s == nil {
		return
	}
	select {
	case <-s.pending: // an older list
	default:
	}
	s.pending <- list
}

// Run saves lists until ctx ends.
func (s *Store) Run(ctx context.Context) {
	for {
		select {
		case list := <-s.pending:
			s.write(list)
		case <-ctx.Done():
			select {
			case list := <-s.pending:
				s.write(list)
			default:
			}
			return
		}
	}
}

func (s *Store) write(list []clusterprofile.Profile) {
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout) // it may wait for the write rate
	defer cancel()
	profiles, err := json.Marshal(list)
	if err == nil {
		var content []byte
		if content, err = json.Marshal(record{Of: s.of, At: time.Now(), Profiles: profiles}); err == nil {
			err = s.dir.SaveRecord(ctx, recordName, content)
		}
	}
	if err != nil {
		s.log.Warn("ClusterProfiles not saved", "error", err)
	}
}

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/clusterprofile"
)

// restoreProfiles serves the clusters of the saved profiles, unless those of the hub are known.
func (s *Server) restoreProfiles(ctx context.Context) {
	p := s.several.profiles
	if p.saved == nil || p.taken.Load() {
		return
	}
	list := p.saved.load()
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	if list == nil || p.listed {
		return
	}
	p.list = list
	s.log.Warn("hub of the ClusterProfiles unreachable, serving the clusters of the saved ClusterProfiles until it responds", "profiles", len(list))
	s.reconcileProfiles(ctx)
}

// profileStore saves the ClusterProfiles that the hub had last, so that a gateway that starts while
// the hub is unreachable knows its clusters.
type profileStore struct {
	dir     *state.Dir
	of      string // which profiles of which hub
	maxAge  time.Duration
	log     *slog.Logger
	pending chan []clusterprofile.Profile // holds the list that is to be saved
}

// savedProfiles is the record in the state directory.
type savedProfiles struct {
	Of       string          `json:"of"`
	At       time.Time       `json:"at"`
	Profiles json.RawMessage `json:"profiles"`
}

const (
	// profilesFolder, in the state directory, has a name that no cluster can have.
	profilesFolder     = "_clusterprofiles"
	profilesRecordName = "clusterprofiles"
	// profilesSaveTimeout bounds one save.
	profilesSaveTimeout = 5 * time.Second
)

// openProfileStore opens the saved profiles; nil without a state directory.
func openProfileStore(s *config.State, of string, log *slog.Logger) (*profileStore, error) {
	if s.Dir == "" {
		return nil, nil
	}
	key, err := stateKey(s.KeyFile, log)
	if err != nil {
		return nil, err
	}
	dir, err := state.Open(state.Options{
		Dir: filepath.Join(s.Dir, profilesFolder), Key: key, MaxBytes: int64(s.MaxBytes), BytesPerSecond: int64(s.WriteRate), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	return &profileStore{dir: dir, of: of, maxAge: s.MaxAge, log: log, pending: make(chan []clusterprofile.Profile, 1)}, nil
}

// load returns the profiles that an earlier process saved; nil if none can be used.
func (s *profileStore) load() []clusterprofile.Profile {
	list, err := s.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("saved ClusterProfiles dropped", "reason", err)
	}
	return list
}

func (s *profileStore) read() ([]clusterprofile.Profile, error) {
	content, err := s.dir.LoadRecord(profilesRecordName)
	if err != nil {
		return nil, err
	}
	var r savedProfiles
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

// save has run save list. Calls must not be concurrent. A nil *profileStore saves nothing.
func (s *profileStore) save(list []clusterprofile.Profile) {
	if s == nil {
		return
	}
	select {
	case <-s.pending: // an older list
	default:
	}
	s.pending <- list
}

// run saves lists until ctx ends, and closes the state directory.
func (s *profileStore) run(ctx context.Context) {
	defer closeState(s.dir, s.log)
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

func (s *profileStore) write(list []clusterprofile.Profile) {
	ctx, cancel := context.WithTimeout(context.Background(), profilesSaveTimeout) // it may wait for the write rate
	defer cancel()
	profiles, err := json.Marshal(list)
	if err == nil {
		var content []byte
		if content, err = json.Marshal(savedProfiles{Of: s.of, At: time.Now(), Profiles: profiles}); err == nil {
			err = s.dir.SaveRecord(ctx, profilesRecordName, content)
		}
	}
	if err != nil {
		s.log.Warn("ClusterProfiles not saved", "error", err)
	}
}

package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubeweir/kubeweir/cache/checkpoint/state"
	"github.com/kubeweir/kubeweir/config"
	"github.com/kubeweir/kubeweir/internal/clusterprofile"
)

// keptProfiles keep over restarts which ClusterProfiles the hub had last, so that a gateway that
// starts while the hub is away knows its clusters.
type keptProfiles struct {
	dir    *state.Dir
	of     string // which profiles of which hub
	maxAge time.Duration
	log    *slog.Logger
	news   chan []clusterprofile.Profile // holds those that are to be written
	done   chan struct{}                 // closed when run has ended
}

// profilesRecord is what is written.
type profilesRecord struct {
	Of       string          `json:"of"`
	At       time.Time       `json:"at"`
	Profiles json.RawMessage `json:"profiles"`
}

const (
	// profilesFolder, in that of the state, is called as no cluster can be; so is the record in it.
	profilesFolder     = "_clusterprofiles"
	profilesRecordName = "clusterprofiles"
)

// openKeptProfiles opens what is kept of the profiles of a hub; nil if nothing is to be.
func openKeptProfiles(g *config.Gateway, hub *rest.Config, log *slog.Logger) (*keptProfiles, error) {
	s, c := &g.State, &g.ClusterProfiles
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
	return &keptProfiles{
		dir: dir, of: strings.Join([]string{hub.Host, c.Namespace, c.LabelSelector}, " "), maxAge: s.MaxAge, log: log,
		news: make(chan []clusterprofile.Profile, 1), done: make(chan struct{}),
	}, nil
}

// load reads what an earlier process has kept; nil if there is nothing that can be used.
func (k *keptProfiles) load() []clusterprofile.Profile {
	list, err := k.read()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("the ClusterProfiles that were kept are dropped", "reason", err)
	}
	return list
}

func (k *keptProfiles) read() ([]clusterprofile.Profile, error) {
	content, err := k.dir.LoadRecord(profilesRecordName)
	if err != nil {
		return nil, err
	}
	var r profilesRecord
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, err
	}
	switch age := time.Since(r.At); {
	case r.Of != k.of:
		return nil, errors.New("they are those of another hub, namespace or selector")
	case k.maxAge > 0 && age > k.maxAge:
		return nil, fmt.Errorf("they are %s old", age.Round(time.Second))
	}
	return clusterprofile.Decode(r.Profiles)
}

// keep has a list written behind. Only one caller at a time may call it.
func (k *keptProfiles) keep(list []clusterprofile.Profile) {
	if k == nil {
		return
	}
	select {
	case <-k.news: // which are of before
	default:
	}
	k.news <- list
}

// run writes what there is to keep until ctx ends, and gives the folder back.
func (k *keptProfiles) run(ctx context.Context) {
	defer close(k.done)
	defer func() {
		if err := k.dir.Close(); err != nil {
			k.log.Warn("closing the state folder", "error", err)
		}
	}()
	for {
		select {
		case list := <-k.news:
			k.write(list)
		case <-ctx.Done():
			select {
			case list := <-k.news:
				k.write(list)
			default:
			}
			return
		}
	}
}

func (k *keptProfiles) write(list []clusterprofile.Profile) {
	if err := k.tryWrite(list); err != nil {
		k.log.Warn("ClusterProfiles are not kept for a restart, serving goes on", "error", err)
	}
}

func (k *keptProfiles) tryWrite(list []clusterprofile.Profile) error {
	r := profilesRecord{Of: k.of, At: time.Now()}
	var err error
	if r.Profiles, err = clusterprofile.Encode(list); err != nil {
		return err
	}
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), memoryWait) // for its turn by the rate of writing
	defer cancel()
	return k.dir.SaveRecord(ctx, profilesRecordName, content)
}

// close gives the folder back if run never ran, and else waits for its end, but not for a disk
// that does not answer.
func (k *keptProfiles) close(ran bool) {
	if !ran {
		_ = k.dir.Close()
		return
	}
	select {
	case <-k.done:
	case <-time.After(memoryWait):
		k.log.Warn("the disk does not answer, ClusterProfiles are not kept")
	}
}

// takeKeptProfiles serves the clusters of the profiles that were kept, unless those of the hub
// are known.
func (s *Server) takeKeptProfiles(ctx context.Context) {
	p := s.several.profiles
	if p.kept == nil || p.taken.Load() {
		return
	}
	list := p.kept.load()
	s.source.mu.Lock()
	defer s.source.mu.Unlock()
	if list == nil || p.listed {
		return
	}
	p.list = list
	s.log.Warn("the hub does not answer: until it does, the clusters of the ClusterProfiles that it had last are served", "profiles", len(list))
	s.reconcileProfiles(ctx)
}

package main

import (
	"github.com/spf13/cobra"

	"github.com/kubeweir/kubeweir/internal/backup"
	"github.com/kubeweir/kubeweir/origin/storage/etcd"
)

// migrateOptions are the flags of migrate.
type migrateOptions struct {
	dataDir, etcdSnapshot, prefix string
	etcd                          etcd.Options
}

// newMigrate is `kubeweir migrate`.
func newMigrate() *cobra.Command {
	var o migrateOptions
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Copy all objects from etcd to a data folder, or back.",
		Long: `With --etcd-servers it reads an etcd and creates the store of a data folder. With --etcd-snapshot it
reads a data folder and writes a snapshot, from which etcdutl snapshot restore creates an etcd.

Objects keep their versions (resourceVersion) and stay encrypted if they are. Stop all API servers
first. No object of the source is changed.`,
		Example: `  # From etcd to a data folder.
  kubeweir migrate --etcd-servers http://127.0.0.1:2379 --data-dir kubeweir-data

  # From a data folder to etcd.
  kubeweir migrate --data-dir kubeweir-data --etcd-snapshot etcd.snapshot
  etcdutl snapshot restore etcd.snapshot --data-dir etcd-data`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case (len(o.etcd.Endpoints) > 0) == (o.etcdSnapshot != ""):
				return usageErrorf("either --etcd-servers or --etcd-snapshot is required")
			case o.dataDir == "":
				return usageErrorf("--data-dir must not be empty")
			case len(o.etcd.Endpoints) > 0:
				restored, err := backup.FromEtcd(c.Context(), o.etcd, o.prefix, o.dataDir)
				return report(c, err, "%s\n", restored)
			}
			keys, revision, err := backup.ToEtcd(c.Context(), o.dataDir, o.etcdSnapshot)
			return report(c, err, "saved %s: %d keys, continues at revision %d\n", o.etcdSnapshot, keys, revision)
		},
	}
	f := c.Flags()
	f.StringVar(&o.dataDir, "data-dir", "kubeweir-data", "data `folder` of the standalone")
	f.StringSliceVar(&o.etcd.Endpoints, "etcd-servers", nil, "`URLs` of the etcd to read, separated by commas")
	f.Lookup("etcd-servers").DefValue = ""
	f.StringVar(&o.prefix, "etcd-prefix", "/registry", "`prefix` of the keys to read from etcd")
	f.StringVar(&o.etcd.CAFile, "etcd-cafile", "", "PEM `file` with the CA of etcd's certificates")
	f.StringVar(&o.etcd.CertFile, "etcd-certfile", "", "PEM `file` with the client certificate for etcd")
	f.StringVar(&o.etcd.KeyFile, "etcd-keyfile", "", "PEM `file` with its key")
	f.StringVar(&o.etcdSnapshot, "etcd-snapshot", "", "`file` to write; it must not exist")
	return c
}

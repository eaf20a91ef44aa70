package pki

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	folderMode = 0o700
	fileMode   = 0o600
	// forOthers are the permissions that a private key must not have. Group permissions are
	// allowed: a pod's fsGroup sets them on every file of a volume.
	forOthers = 0o007
)

// Open loads the material that folder holds, makes what is missing and renews what
// is near its end; an empty or missing folder is filled. It is made with mode 0700,
// files with 0600, each written whole or not at all, and on disk when Open returns.
// Two processes may open one folder at a time; the second waits.
//
// Nothing that cannot be made again is ever overwritten: a CA whose key is missing
// or does not belong to it, a certificate by another CA, a file that cannot be
// read or that others may read are errors that name the file and what to do.
func Open(dir string, o Options) (*Material, error) { return open(dir, o, assemble) }

// OpenServing is Open for a server that is nothing but one: of the material there are
// the CA and the serving certificate.
func OpenServing(dir string, o Options) (*Material, error) { return open(dir, o, assembleServing) }

func open(dir string, o Options, assemble func(Options, storage) (*Material, error)) (*Material, error) {
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return nil, fmt.Errorf("pki: making the folder: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, fmt.Errorf("pki: locking %s: %w", dir, err)
	}
	defer unlock()
	m, err := assemble(o, folder(dir))
	if err != nil {
		return nil, fmt.Errorf("pki: %s: %w", dir, err)
	}
	m.dir = dir
	return m, nil
}

// folder is kept material in files NAME.crt and NAME.key, sa.pub for a key alone.
// A new key is written before its certificate, so a certificate without key is a
// loss, a key without certificate only the trace of a start that was cut off.
type folder string

func (f folder) pair(name string) (*KeyPair, error) {
	certPEM, err := f.read(name + ".crt")
	if err != nil || certPEM == nil {
		return nil, err
	}
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, fmt.Errorf("%s.crt: %w", name, err)
	}
	key, keyPEM, err := f.key(name)
	if err != nil {
		return nil, err
	}
	if key == nil {
		return nil, fmt.Errorf("%s.key is missing beside %s.crt; put it back, or remove %s.crt to have both made anew", name, name, name)
	}
	if !samePublicKey(cert.PublicKey, key.Public()) {
		return nil, fmt.Errorf("%s.crt and %s.key do not belong together; put the right one back, or remove both to have them made anew", name, name)
	}
	return &KeyPair{CertPEM: certPEM, KeyPEM: keyPEM, Certificate: cert, Key: key}, nil
}

func (f folder) key(name string) (crypto.Signer, []byte, error) {
	file := name + ".key"
	keyPEM, err := f.read(file)
	if err != nil || keyPEM == nil {
		return nil, nil, err
	}
	info, err := os.Stat(filepath.Join(string(f), file))
	if err != nil {
		return nil, nil, err
	}
	if mode := info.Mode().Perm(); mode&forOthers != 0 {
		return nil, nil, fmt.Errorf("%s is a private key that others may use (mode %04o); chmod 600 it, and replace it if others could have read it", file, mode)
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, keyPEM, nil
}

func (f folder) save(name string, p *KeyPair, newKey bool) error {
	if newKey {
		if err := f.write(name+".key", p.KeyPEM); err != nil {
			return err
		}
	}
	return f.write(name+".crt", p.CertPEM)
}

func (f folder) saveKey(name string, key crypto.Signer, keyPEM []byte) error {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := f.write(name+".key", keyPEM); err != nil {
		return err
	}
	return f.write(name+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

// read returns a file's content, nil when there is no such file.
func (f folder) read(file string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(string(f), file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && content == nil {
		content = []byte{}
	}
	return content, err
}

func (f folder) write(file string, content []byte) error {
	return WriteFile(filepath.Join(string(f), file), content)
}

// WriteFile writes a file that only its owner may read. It is there completely, on
// disk, when WriteFile returns; until then it is as it was before. One goroutine of
// one process at a time may write a file.
func WriteFile(path string, content []byte) error {
	dir := filepath.Dir(path)
	temporary := filepath.Join(dir, "."+filepath.Base(path)+".new")
	// One that a killed process left behind may have another mode.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		os.Remove(temporary)
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return syncFolder(dir)
}

// syncFolder makes the entries of a directory durable.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

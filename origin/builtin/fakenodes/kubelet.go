package fakenodes

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"
)

const (
	// notice is the log of every container.
	notice = "This Pod is simulated by kubeweir (--fake-nodes): it has no containers, and no logs.\n"
	// notPossible is the response to other requests.
	notPossible = "This Pod has no containers, because it is simulated: exec, attach and port-forward are not possible.\n"
)

// kubelet is the API of all nodes' kubelets. It says that there is nothing, so anybody may ask it.
type kubelet struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{} // closed when it no longer serves
}

func newKubelet() (*kubelet, error) {
	certificate, err := selfSigned()
	if err != nil {
		return nil, err
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(address, "0"), &tls.Config{Certificates: []tls.Certificate{*certificate}})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, notice)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, notPossible, http.StatusNotImplemented) })
	k := &kubelet{
		listener: listener, done: make(chan struct{}),
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)},
	}
	go func() {
		defer close(k.done)
		_ = k.server.Serve(listener) // until close
	}()
	return k, nil
}

func (k *kubelet) port() int32 { return int32(k.listener.Addr().(*net.TCPAddr).Port) }

func (k *kubelet) close() {
	_ = k.server.Close()
	<-k.done
}

// selfSigned returns a certificate that nobody verifies, as that of a kubelet without serverTLSBootstrap.
func selfSigned() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: prefix + "kubelet"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), IPAddresses: []net.IP{net.ParseIP(address)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Package bench measures kubeweir beside kube-apiserver, in one run on one machine.
//
// It starts a real etcd and kube-apiserver, fills them with pods, and puts the gateway in front. It
// then measures each row of the table on both servers in turn, in small alternating slices, over
// TLS and with the same client. The main figure is the processor time of the server's process. It
// excludes the client, which shares the machine, and other load on the machine hardly changes it,
// while latencies grow. A third server, the floor, sends the same bytes from memory and does
// nothing else. Nginx, if installed, responds from its cache.
//
// Rows defines all rows. Run measures them.
package bench

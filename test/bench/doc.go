// Package bench measures kubeweir beside kube-apiserver, in one run on one machine.
//
// A real etcd and kube-apiserver are started, filled with pods, and the gateway is put in front. Each row of the
// table is then measured on both in turn, a small slice of the one after a small slice of the other, over TLS and by
// the same client. What counts is the processor time of the server's process: that of the client, which shares the
// machine, does not, and a machine busy with other things lengthens latencies but hardly changes it. A third server,
// the floor, sends the same bytes from memory and does nothing else. Nginx, where it is installed, answers from its cache.
//
// Rows is the one place where rows are defined. Run measures them.
package bench

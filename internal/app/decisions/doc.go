// Package decisions saves a cluster's last decisions about clients (who a token belongs to, who may
// do what) and its discovery, so that a process that starts while no API server responds can serve
// clients. It is encrypted, because it reveals who may do what.
//
//	loaded, or none ---- the cluster identifies itself ----> saved again and again
//	                                |
//	                                +-- another cluster, or it rejects to: dropped
//
// Nothing is written before the cluster has identified itself, so that the decisions of an earlier
// process keep their age.
package decisions

// Package revocation ends open watches whose client lost the permission or the credential that they
// were opened with: an open watch outlives the decision that opened it.
//
// Watches reviews permissions at once when an RBAC object changed, and permissions and credentials
// periodically. Package proxy registers its watches; serve runs Watches.Run. The package imports
// authn, authz and visible, and what they import.
package revocation

package edge

// SelfSigned is for tests from outside.
var SelfSigned = selfSigned

package e2e

const identitiesNamespace = "identities"

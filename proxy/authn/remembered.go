package authn

// This file answers questions from memory: for those who look at what a process knows.

// Remembered returns a user of that name who was found good of late, with the groups that
// the credential gave; nil if there is none. Nobody is asked.
func (a *Authenticator) Remembered(name string) (found *User) {
	if a.tokens != nil {
		a.tokens.answers.Search(func(answer tokenAnswer) bool {
			if answer.user == nil || answer.user.GetName() != name {
				return false
			}
			found = answer.user
			return true
		})
	}
	for _, v := range a.verifiers() {
		v.verified.Search(func(c verifiedCert) bool {
			if found != nil || c.identity == nil || c.identity.User.GetName() != name {
				return found != nil
			}
			found = c.identity.User
			return true
		})
	}
	return found
}

func (a *Authenticator) verifiers() (list []*verifier) {
	if a.clientCerts != nil {
		list = append(list, a.clientCerts)
	}
	if a.frontProxy != nil {
		list = append(list, a.frontProxy.verifier)
	}
	return list
}

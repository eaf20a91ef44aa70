package console

import "net/http"

// serveConfig shows the configuration in force.
func (c *Console) serveConfig(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, c.Configuration())
}

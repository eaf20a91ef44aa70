package cache

import "github.com/kubeweir/kubeweir/internal/api"

// panickingRenderer renders everything but compressed initial events.
type panickingRenderer struct{ watchRenderer }

func (panickingRenderer) initialEvents(*Collection, api.Representation, api.Compression, *selection) (*compressed, error) {
	panic("fatal")
}

// BreakCompression has the compression of initial events panic.
func (ws *Watches) BreakCompression() { ws.renderer = panickingRenderer{ws.renderer} }

package embedded

import "strings"

// Folder is how many keys there are below one.
type Folder struct {
	Name string
	Keys int
}

// Folders counts the keys below each folder of prefix, which ends with a slash; of a folder
// that split chooses, below each of its own. It reads the index alone, a few places for each
// folder.
func (e *Engine) Folders(prefix string, split func(name string) bool) []Folder {
	e.mu.Lock()
	x := e.mu.index.copy()
	e.mu.Unlock()
	return x.folders(prefix, "", split)
}

func (x *index) folders(prefix, parent string, split func(name string) bool) (list []Folder) {
	for from := prefix; ; {
		key, ok := x.from(from)
		rest, below := strings.CutPrefix(key, prefix)
		if !ok || !below {
			return list
		}
		name, _, isFolder := strings.Cut(rest, "/")
		folder := prefix + name + "/"
		switch {
		case !isFolder:
			from = key + "\x00"
			continue
		case parent == "" && split(name):
			list = append(list, x.folders(folder, name+"/", split)...)
		default:
			list = append(list, Folder{parent + name, x.count(folder, "")})
		}
		if from, ok = prefixEnd(folder); !ok {
			return list
		}
	}
}

// from is the first key that is not below key.
func (x *index) from(key string) (found string, ok bool) {
	x.tree.Ascend(key, func(k string, _ uint64) bool {
		found, ok = k, true
		return false
	})
	return found, ok
}

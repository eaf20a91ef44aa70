package embedded

import "strings"

// Folder is the number of keys below a folder.
type Folder struct {
	Name string
	Keys int
}

// Folders counts the keys below each folder of prefix, which ends with a slash. A folder that
// split chooses is counted by its own folders. Folders reads the index of these keys once.
func (e *Engine) Folders(prefix string, split func(name string) bool) []Folder {
	e.mu.Lock()
	x := e.mu.index.copy()
	e.mu.Unlock()
	return x.folders(prefix, split)
}

func (x *index) folders(prefix string, split func(name string) bool) (list []Folder) {
	x.tree.Ascend(prefix, func(key string, _ uint64) bool {
		rest, below := strings.CutPrefix(key, prefix)
		name, rest, isFolder := strings.Cut(rest, "/")
		if isFolder && split(name) {
			var inner string
			inner, _, isFolder = strings.Cut(rest, "/")
			name += "/" + inner
		}
		switch last := len(list) - 1; {
		case !below || !isFolder:
		case last >= 0 && list[last].Name == name:
			list[last].Keys++
		default:
			list = append(list, Folder{name, 1})
		}
		return below
	})
	return list
}

package app

import "testing"

func TestProgramPages(t *testing.T) {
	const program = "/usr/bin/kubeweir"
	for line, want := range map[string][2]uintptr{
		"00402000-037b9000 r-xp 00002000 fe:00 10420479                           /usr/bin/kubeweir":  {0x402000, 0x37b9000},
		"037b9000-06fcc000 r--p 033b9000 fe:00 10420479                           /usr/bin/kubeweir":  {0x37b9000, 0x6fcc000},
		"06fcd000-070de000 rw-p 06bcc000 fe:00 10420479                           /usr/bin/kubeweir":  {},
		"7f0000000000-7f0000001000 r-xp 00000000 fe:00 1                          /usr/lib/libc.so.6": {},
		"c000000000-c004000000 rw-p 00000000 00:00 0 ":                                                {},
		"x-y r-xp 00002000 fe:00 10420479 /usr/bin/kubeweir":                                          {},
		"2-1 r-xp 00002000 fe:00 10420479 /usr/bin/kubeweir":                                          {},
		"1 r-xp 00002000 fe:00 10420479 /usr/bin/kubeweir":                                            {},
		"": {},
	} {
		from, to, ok := programPages(line, program)
		if ok != (want != [2]uintptr{}) || from != want[0] || to != want[1] {
			t.Errorf("%q: %x-%x, %v", line, from, to, ok)
		}
	}
}

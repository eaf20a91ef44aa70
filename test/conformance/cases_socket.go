package conformance

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// socketCases watch over WebSockets.
func socketCases(env *Env) []Case {
	socket := func(name, path string, events ...string) Case {
		c := watch("socket/"+name, path, events...)
		c.WebSocket = true
		return c
	}
	since := fmt.Sprintf("%s?watch=true&resourceVersion=%d", podsPath, env.Versions.Middle)
	byProtocol := socket("token as subprotocol", since, changed...).from(anonymous)
	byProtocol.Subprotocols = []string{tokenProtocol(env.Users[admin].Token), "base64.binary.k8s.io"}
	binary := socket("binary subprotocol", since, changed...)
	binary.Subprotocols = []string{"binary.k8s.io"}
	badToken := socket("62 bad token as subprotocol", since).from(anonymous).status(401)
	badToken.Subprotocols = []string{tokenProtocol("nonsense"), "base64.binary.k8s.io"}
	badToken.Watch = false
	forbidden := socket("63 without rights", since).from(alice).status(403)
	forbidden.Watch = false
	old := fmt.Sprintf("%s?watch=true&resourceVersion=%d", podsPath, env.Versions.Expired)
	tooOld := `too old resource version: \d+ \(\d+\)`
	rejected := func(name, path string, status int) Case {
		c := socket(name, path).status(status)
		c.Watch = false
		return c
	}
	return slices.Concat(handshakeCases(env), credentialCases(env), sentCases(env), []Case{
		socket("JSON in text frames", since, changed...),
		socket("protobuf in binary frames", since, changed...).accept(typeProto),
		socket("table", since, changed...).accept(typeTable),
		socket("metadata", since, changed...).accept(typeMeta),
		socket("metadata in protobuf", since, changed...).accept(typeProtoMeta),
		socket("custom", widgetsPath+"?watch=1&resourceVersion=0", added, added),
		socket("path", fmt.Sprintf("/api/v1/watch/namespaces/alpha/pods?resourceVersion=%d", env.Versions.Middle), changed...),
		socket("any version", podsPath+"?watch=1&resourceVersion=0&labelSelector=tier%3Dmoved", repeat(added, 5)...),
		socket("most recent", podsPath+"?watch=1&labelSelector=tier%3Dmoved", repeat(added, 5)...),
		socket("initial events and their end", widgetsPath+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", added, added, bookmark),
		socket("initial events in protobuf", podsPath+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&labelSelector=tier%3Dmoved", append(repeat(added, 5), bookmark)...).accept(typeProto),
		socket("6 leaving a label selector", since+"&labelSelector=tier%3Dfront", deleted, deleted, modified),
		socket("55 by name", since+"&fieldSelector=metadata.name%3Dweb-02", modified),
		socket("closed normally in time", since+"&timeoutSeconds=2", changed...).toEOF().slow(),
		socket("3 too old", old, failed).toEOF().contains(`"code":410`).mask(tooOld),
		socket("3 too old, protobuf", old, failed).toEOF().accept(typeProto).mask(tooOld),
		byProtocol, binary, badToken, forbidden,
		rejected("unknown resource", "/api/v1/things?watch=1", 404),
		rejected("YAML", since, 406).accept(typeYAML),
		rejected("initial events without match", podsPath+"?watch=1&sendInitialEvents=true", 422),
		rejected("62 invalid token", since, 401).from(nobody),
	})
}

// tokenProtocol encodes a token as a subprotocol.
func tokenProtocol(token string) string {
	return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
}

// bye is a client's close frame with the code 1000.
var bye = clientFrame(8, "\x03\xe8")

// shake opens a watch over a WebSocket with the usual header lines, changed as given; a change that
// ends in ":-" removes a line. The watched object does not exist.
func shake(env *Env, name string, change ...string) Case {
	path := fmt.Sprintf("%s?watch=true&resourceVersion=%d&fieldSelector=metadata.name%%3Dnone", podsPath, env.Versions.Seeded)
	c := get("socket/"+name, path).status(101)
	c.Sends = bye
	for _, line := range []string{"Connection: Upgrade", "Upgrade: websocket", "Origin: https://a", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: a2V5"} {
		header, _, _ := strings.Cut(line, ":")
		if !slices.ContainsFunc(change, func(l string) bool { return strings.HasPrefix(l, header+":") }) {
			c.Handshake = append(c.Handshake, line)
		}
	}
	for _, line := range change {
		if !strings.HasSuffix(line, ":-") {
			c.Handshake = append(c.Handshake, line)
		}
	}
	return c
}

// handshakeCases are unusual WebSocket handshakes.
func handshakeCases(env *Env) []Case {
	shake := func(name string, change ...string) Case { return shake(env, name, change...) }
	// plain is a handshake that is no WebSocket upgrade, so the response is a watch over HTTP.
	plain := func(name string, change ...string) Case {
		c := shake(name, change...).status(200).slow()
		c.Path += "&timeoutSeconds=1"
		return c
	}
	return []Case{
		shake("handshake"),
		shake("handshake in other words", "Connection: keep-alive, upgrade", "Upgrade: WebSocket", "Origin: null://x"),
		shake("handshake with an empty body", "Content-Length: 0"),
		shake("subprotocol", "Sec-WebSocket-Protocol: a.b"),
		shake("subprotocol that is no token", "Sec-WebSocket-Protocol: a b"),
		shake("subprotocol among white space", "Sec-WebSocket-Protocol: \t a.b\t "),
		shake("empty subprotocol", "Sec-WebSocket-Protocol: "),
		shake("extensions are not agreed to", "Sec-WebSocket-Extensions: permessage-deflate", "Accept-Encoding: gzip, deflate, br"),
		shake("several subprotocols", "Sec-WebSocket-Protocol: a, b").status(400),
		shake("several subprotocols, all empty", "Sec-WebSocket-Protocol: ,").status(400),
		shake("several lines of subprotocols", "Sec-WebSocket-Protocol: a", "Sec-WebSocket-Protocol: b"),
		shake("another version", "Sec-WebSocket-Version: 8").status(400),
		shake("no version", "Sec-WebSocket-Version:-").status(400),
		shake("several versions", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8"),
		shake("no key", "Sec-WebSocket-Key:-").status(400),
		shake("empty key", "Sec-WebSocket-Key: ").status(400),
		shake("several keys", "Sec-WebSocket-Key: a2V5", "Sec-WebSocket-Key: c2Vjb25k"),
		shake("no origin", "Origin:-").status(403),
		shake("empty origin", "Origin: ").status(403),
		shake("null origin", "Origin: null").status(403),
		shake("origin that is no URL", "Origin: https://%").status(403),
		shake("origin that is a path", "Origin: /a"),
		shake("several origins", "Origin: https://a", "Origin: null"),
		shake("POST").method("POST").status(anyStatus).ignoreBody(),
		shake("HEAD").method("HEAD").status(405),
		plain("no upgrade without Connection", "Connection: keep-alive"),
		plain("no upgrade to one of several protocols", "Upgrade: websocket, h2c"),
	}
}

// credentialCases send a token as a subprotocol. It authenticates only without other credentials.
func credentialCases(env *Env) []Case {
	good, bad := tokenProtocol(env.Users[admin].Token), tokenProtocol("nonsense")
	protocols := func(name, user string, lines ...string) Case {
		for i := range lines {
			lines[i] = "Sec-WebSocket-Protocol: " + lines[i]
		}
		c := shake(env, name, lines...).from(user)
		if user == carol { // carol may only watch this
			c.Path = fmt.Sprintf("/api/v1/namespaces/alpha/configmaps?watch=true&resourceVersion=%d&fieldSelector=metadata.name%%3Dshared", env.Versions.Seeded)
		}
		return c
	}
	return []Case{
		protocols("token as subprotocol behind another", anonymous, "a, "+good),
		protocols("token as subprotocol in a line of its own", anonymous, "a", good),
		protocols("token as subprotocol and an empty one", anonymous, good+","),
		protocols("token as subprotocol and several", anonymous, "a, "+good+", b").status(400),
		protocols("token as subprotocol and several lines", anonymous, "a, "+good, "b").status(400),
		protocols("token as the only subprotocol", anonymous, good).status(401),
		protocols("two tokens as subprotocols", anonymous, good+", a, "+good).status(401),
		protocols("token as subprotocol that is not encoded", anonymous, "a, base64url.bearer.authorization.k8s.io.%%").status(401),
		protocols("token as subprotocol and a bad one before", nobody, good+", a"),
		protocols("token as subprotocol beside another credential", admin, good+", a").status(400),
		protocols("bad token as subprotocol beside another credential", admin, "a, "+bad).status(400),
		protocols("token as the only subprotocol beside another credential", admin, good),
		protocols("two tokens as subprotocols beside another credential", admin, good+", "+good).status(400),
		protocols("token as subprotocol beside a certificate", carol, good+", a").status(400),
		protocols("token as the only subprotocol beside a certificate", carol, good),
	}
}

// sentCases send frames that a server of watches does not expect.
func sentCases(env *Env) []Case {
	sends := func(name, what string) Case {
		c := shake(env, name)
		c.Sends = what
		return c
	}
	return []Case{
		sends("ping", clientFrame(9, "are you there")+bye),
		sends("empty ping", clientFrame(9, "")+bye),
		sends("masked ping", "\x89\x82\x01\x02\x03\x04ig"+bye),
		sends("long ping", clientFrame(9, strings.Repeat("x", 300))+bye),
		sends("pong and data", clientFrame(10, "")+clientFrame(1, "hello")+clientFrame(2, strings.Repeat("x", 1000))+clientFrame(3, "")+bye),
		sends("reserved bits and opcodes", clientFrame(0x7f, "a")+clientFrame(0x43, "b")+bye),
		sends("unmasked", "\x81\x02hi"),
		sends("unmasked close", "\x88\x00"),
		sends("close without a code", clientFrame(8, "")),
		sends("length with the highest bit", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00hi"+bye),
		sends("too large", "\x82\xff\x00\x00\x00\x00\x02\x00\x00\x01\x00\x00\x00\x00"),
		sends("fragments without end", "\x01\x80\x00\x00\x00\x00"+strings.Repeat("\x00\x80\x00\x00\x00\x00", 100)+bye),
	}
}

package h2

import (
	"errors"
	"io"

	"golang.org/x/net/http2"

	"github.com/kubeweir/kubeweir/proxy/edge"
)

const (
	// largeFrame is the size from which on the buffer of a frame is not reused.
	largeFrame = 256
)

// greet reads the client's preface and sends the server's settings.
func (h *conn) greet() error {
	o := &h.Options
	h.mu.Lock()
	h.appendSettings(
		http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: o.MaxStreams},
		http2.Setting{ID: http2.SettingInitialWindowSize, Val: uploadBuffer},
		http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: uint32(h.headerLimit())}, //nolint:gosec // a small number
		http2.Setting{ID: http2.SettingEnableConnectProtocol, Val: 1},
	)
	h.giveBackLocked(uploadBuffers - initialWindow)
	h.mu.Unlock()
	h.flushHere()
	in := &h.In
	in.Mode = edge.ReadHead
	if in.Buf == nil && !in.WaitFor(o.ReadHeaderTimeout) {
		if in.Err == nil || !edge.IsInterrupted(in.Err) {
			return errClientLeft
		}
		// The client may have sent requests already. This GOAWAY states that none was served.
		h.mu.Lock()
		h.goAwayFinalLocked()
		h.mu.Unlock()
		return errGoneAway
	}
	var preface [len(http2.ClientPreface)]byte
	in.Mode = edge.ReadHead
	n, err := io.ReadFull(in.Buf, preface[:])
	if string(preface[:n]) != http2.ClientPreface[:n] {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err != nil {
		return errClientLeft
	}
	return h.readFirst()
}

// readFirst reads the first frame, which has to be SETTINGS.
func (h *conn) readFirst() error {
	fh, err := h.framer.ReadFrameHeader()
	if err != nil {
		return h.broken(fh, err)
	}
	if fh.Type != http2.FrameSettings || fh.Flags.Has(http2.FlagSettingsAck) {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	_, err = h.readPayload(fh)
	return err
}

// readFrame reads and handles one frame. It returns a request that the frame completes.
func (h *conn) readFrame() (*stream, error) {
	h.In.Mode = edge.ReadHead // the whole frame is to come soon
	fh, err := h.framer.ReadFrameHeader()
	if err != nil {
		return nil, h.broken(fh, err)
	}
	if fh.Type == http2.FrameData {
		return nil, h.readData(fh)
	}
	return h.readPayload(fh)
}

// readPayload reads the rest of a frame that is not DATA.
func (h *conn) readPayload(fh http2.FrameHeader) (*stream, error) {
	frame, err := h.framer.ReadFrameForHeader(fh)
	if err != nil {
		return nil, h.broken(fh, err)
	}
	h.large = h.large || fh.Length > largeFrame
	switch f := frame.(type) {
	case *http2.HeadersFrame:
		return h.readHeaders(f)
	case *http2.ContinuationFrame:
		return h.readContinuation(f)
	case *http2.SettingsFrame:
		return nil, h.readSettings(f)
	case *http2.WindowUpdateFrame:
		return nil, h.readWindowUpdate(f)
	case *http2.RSTStreamFrame:
		return nil, h.readReset(f)
	case *http2.PingFrame:
		return nil, h.readPing(f)
	case *http2.PushPromiseFrame:
		return nil, http2.ConnectionError(http2.ErrCodeProtocol)
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return nil, h.reject(f.StreamID, http2.ErrCodeProtocol)
		}
		return nil, h.charge(frameCost)
	default: // GOAWAY: the client begins nothing more, and ends the connection itself
		return nil, h.charge(frameCost)
	}
}

// broken converts the failure to read a frame into a connection or stream error.
func (h *conn) broken(fh http2.FrameHeader, err error) error {
	var se http2.StreamError
	var ce http2.ConnectionError
	switch {
	case errors.As(err, &se):
		if fh.Type == http2.FrameHeaders {
			// The header block was not decoded, so the HPACK state is lost.
			return http2.ConnectionError(se.Code)
		}
		return h.reject(se.StreamID, se.Code)
	case errors.As(err, &ce):
		return ce
	case errors.Is(err, http2.ErrFrameTooLarge):
		return http2.ConnectionError(http2.ErrCodeFrameSize)
	case errors.Is(err, io.ErrUnexpectedEOF) && h.In.Err == nil:
		return http2.ConnectionError(http2.ErrCodeFrameSize) // too short for its own fields
	}
	return errClientLeft
}

// streamOfLocked returns the open stream of a frame. If there is none, wasOpen reports whether
// there was one.
func (h *conn) streamOfLocked(id uint32) (st *stream, wasOpen bool) {
	return h.streams[id], id <= h.maxID && id%2 == 1
}

func (h *conn) readSettings(f *http2.SettingsFrame) error {
	if err := h.charge(frameCost + f.NumSettings()); err != nil {
		return err
	}
	switch {
	case f.IsAck():
		return nil
	case f.NumSettings() > mostSettings:
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	err := f.ForeachSetting(func(s http2.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case http2.SettingInitialWindowSize:
			return h.moveWindowsLocked(int64(s.Val))
		case http2.SettingMaxFrameSize:
			h.maxFrame = int(s.Val)
		case http2.SettingHeaderTableSize:
			h.sendNoTable = true
		}
		return nil
	})
	if err != nil {
		var ce http2.ConnectionError
		if errors.As(err, &ce) {
			return ce
		}
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	h.appendSettingsAck()
	return nil
}

// moveWindowsLocked applies a changed initial window to all streams, including open ones.
func (h *conn) moveWindowsLocked(initial int64) error {
	by := initial - h.initial
	h.initial = initial
	for _, st := range h.streams {
		if st.window += by; st.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		if by > 0 {
			st.wakeLocked()
		}
	}
	return nil
}

// chargeResponse charges a frame that is free as long as there are no more such frames than the
// client received data.
func (h *conn) chargeResponse(withStatus bool) error {
	h.mu.Lock()
	free := withStatus && h.updates > 0
	if free {
		h.updates--
	}
	h.mu.Unlock()
	if free {
		return nil
	}
	return h.charge(frameCost)
}

func (h *conn) readWindowUpdate(f *http2.WindowUpdateFrame) error {
	if err := h.chargeResponse(true); err != nil {
		return err
	}
	h.mu.Lock()
	if f.StreamID == 0 {
		defer h.mu.Unlock()
		h.delivery.byUpdates = min(h.delivery.byUpdates+int64(f.Increment), h.delivery.sent)
		if h.window += int64(f.Increment); h.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		h.wakeNextLocked()
		return nil
	}
	st, wasOpen := h.streamOfLocked(f.StreamID)
	tooLarge := false
	if st != nil {
		st.window += int64(f.Increment)
		tooLarge = st.window > maxWindow
		st.wakeLocked()
	}
	h.mu.Unlock()
	switch {
	case tooLarge:
		return h.reject(f.StreamID, http2.ErrCodeFlowControl)
	case !wasOpen:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (h *conn) readReset(f *http2.RSTStreamFrame) error {
	if err := h.charge(resetCost); err != nil {
		return err
	}
	h.mu.Lock()
	st, wasOpen := h.streamOfLocked(f.StreamID)
	if st != nil {
		h.endLocked(st, errClientLeft)
	}
	h.mu.Unlock()
	switch {
	case st != nil:
		st.abandon(errClientLeft)
	case !wasOpen:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (h *conn) readPing(f *http2.PingFrame) error {
	if err := h.chargeResponse(f.IsAck()); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !f.IsAck():
		h.appendPing(true, f.Data)
	case h.goAway.state == goAwayFirst && f.Data == goAwayPing:
		h.goAwayFinalLocked()
	default: // it answers pingLocked
		h.delivery.gotPing(f.Data)
	}
	return nil
}

// readData reads a DATA frame into the body of its request.
func (h *conn) readData(fh http2.FrameHeader) error {
	if fh.StreamID == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	size, pad := int(fh.Length), 0
	if fh.Flags.Has(http2.FlagDataPadded) {
		if size == 0 {
			return http2.ConnectionError(http2.ErrCodeFrameSize)
		}
		b, err := h.In.Buf.ReadByte()
		if err != nil {
			return errClientLeft
		}
		if size, pad = size-1, int(b); pad > size {
			return http2.ConnectionError(http2.ErrCodeProtocol)
		}
		size -= pad
	}
	end := fh.Flags.Has(http2.FlagDataEndStream)
	if pad > size || size == 0 && !end {
		if err := h.charge(frameCost + pad/padded); err != nil {
			return err
		}
	}
	h.In.Mode = edge.ReadBody // a client may be slow
	st, code, cost, err := h.receiverOf(fh, end)
	switch {
	case err != nil:
		return err
	case st == nil:
		if err := h.skip(size+pad, int64(fh.Length)); err != nil {
			return err
		}
		if code != 0 {
			return h.reject(fh.StreamID, code)
		}
		return h.charge(cost)
	}
	wanted, held, err := st.body.take(h.In.Buf, size)
	switch {
	case errors.Is(err, errOverShare):
		return h.rejectData(st, size+pad, int64(fh.Length))
	case err != nil:
		return errClientLeft
	}
	if err := h.skip(pad, int64(int(fh.Length)-held)); err != nil {
		return err
	}
	if err := h.gotData(st, int64(int(fh.Length)-wanted), end); err != nil {
		return err
	}
	if wanted == 0 && size > 0 {
		return h.charge(frameCost) // nobody reads it
	}
	return nil
}

// receiverOf charges a DATA frame to the windows and returns the stream that receives it. If it
// returns no stream, the frame is skipped, and either the client pays cost or the stream is reset
// with code.
func (h *conn) receiverOf(fh http2.FrameHeader, end bool) (st *stream, code http2.ErrCode, cost int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.received -= int64(fh.Length); h.received < 0 {
		return nil, 0, 0, http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	st, wasOpen := h.streamOfLocked(fh.StreamID)
	if st == nil {
		late := h.resets.find(fh.StreamID)
		switch {
		case !wasOpen:
			return nil, 0, 0, http2.ConnectionError(http2.ErrCodeProtocol)
		case late != nil:
			return nil, 0, late.take(int64(fh.Length), end), nil
		}
	}
	if st == nil || st.gotEnd {
		return nil, http2.ErrCodeStreamClosed, 0, nil
	}
	if st.received -= int64(fh.Length); st.received < 0 {
		return nil, http2.ErrCodeFlowControl, 0, nil
	}
	return st, 0, 0, nil
}

// rejectData resets a stream whose user has too much unread data, and drops the n bytes that have
// arrived for it.
func (h *conn) rejectData(st *stream, n int, window int64) error {
	if err := h.skip(n, window); err != nil {
		return err
	}
	h.Metrics.UnreadStreams.Inc()
	if err := h.charge(resetCost); err != nil {
		return err
	}
	h.mu.Lock()
	h.resetLocked(st, http2.ErrCodeEnhanceYourCalm, errOverShare)
	h.mu.Unlock()
	st.abandon(errOverShare)
	return nil
}

// skip discards n bytes. The client may send window bytes more.
func (h *conn) skip(n int, window int64) error {
	if _, err := h.In.Buf.Discard(n); err != nil {
		return errClientLeft
	}
	h.mu.Lock()
	h.giveBackLocked(window)
	h.mu.Unlock()
	return nil
}

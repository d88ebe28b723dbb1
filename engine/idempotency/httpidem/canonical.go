package httpidem

import (
	"bytes"
	"encoding/binary"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"
)

// The forms in which a body is compared.
const (
	rawForm       = "raw"
	jsonForm      = "json"
	urlForm       = "form"
	multipartForm = "multipart"
)

// canonical returns a body that is not JSON in the form in which it is compared.
func canonical(mediaType, contentType string, body []byte) (form string, written []byte) {
	switch {
	case len(body) == 0:
	case mediaType == "application/x-www-form-urlencoded":
		if values, err := url.ParseQuery(string(body)); err == nil {
			return urlForm, []byte(values.Encode())
		}
	case mediaType == "multipart/form-data":
		if written, ok := canonicalMultipart(contentType, body); ok {
			return multipartForm, written
		}
	}
	return rawForm, body
}

// canonicalMultipart writes the parts in their order: clients draw a new boundary for each attempt, so the bytes differ.
func canonicalMultipart(contentType string, body []byte) (written []byte, ok bool) {
	_, parameters, err := mime.ParseMediaType(contentType)
	if err != nil || parameters["boundary"] == "" {
		return nil, false
	}
	add := func(text []byte) {
		written = append(binary.BigEndian.AppendUint64(written, uint64(len(text))), text...)
	}
	for parts := multipart.NewReader(bytes.NewReader(body), parameters["boundary"]); ; {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return written, true
		}
		if err != nil {
			return nil, false
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, false
		}
		names := make([]string, 0, len(part.Header))
		for name, values := range part.Header {
			names = append(names, name+"\x00"+strings.Join(values, "\x00"))
		}
		slices.Sort(names)
		add([]byte(strings.Join(names, "\x01")))
		add(content)
	}
}

package httpidem

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func canonicalText(source string) (string, bool) {
	c := &canonicalizer{}
	written, ok := c.canonicalize(nil, []byte(source))
	return string(written), ok
}

func TestC07JSONIsComparedBySortedNamesAndTheTextOfItsNumbers(t *testing.T) {
	for source, want := range map[string]string{
		` { "b" : [ 1 , 2.50, -0, 1e400 ] , "a" : { "d":null,"c":true } } `: `{"a":{"c":true,"d":null},"b":[1,2.50,-0,1e400]}`,
		`{"a":"\u0041\n\/\"\\\u00e9\ud83d\ude00"}`:                          `{"a":"A\u000a/\"\\é😀"}`,
		`"x"`: `"x"`, `1`: `1`, `[]`: `[]`, `{}`: `{}`, `[[],{}]`: `[[],{}]`, "\t\r\n false\n": `false`,
		`{"aa":1,"a":2,"":3}`: `{"":3,"a":2,"aa":1}`, `{"ab":1,"aC":2,"A":3}`: `{"A":3,"aC":2,"ab":1}`,
	} {
		if got, ok := canonicalText(source); !ok || got != want {
			t.Errorf("%s became %s, %v; want %s", source, got, ok, want)
		}
	}
}

func TestC07NumbersThatAFloatWouldMergeStayApart(t *testing.T) {
	for _, pair := range [][2]string{{"9007199254740992", "9007199254740993"}, {"1", "1.0"}, {"-0", "0"}, {"1e2", "100"}, {`"é"`, "\"e\u0301\""}} {
		a, _ := canonicalText(pair[0])
		b, _ := canonicalText(pair[1])
		if a == b {
			t.Errorf("%s and %s are one", pair[0], pair[1])
		}
	}
}

func TestC07WhatCouldBeReadInTwoWaysIsComparedByItsBytes(t *testing.T) {
	for _, source := range []string{
		`{"a":1,"a":2}`, `{"amount":1,"Amount":2}`, `{"b":1,"B":1,"a":1}`, `{"k":1,"\u212a":1}`, `{"é":1,"É":2}`, `{"ſ":1,"S":2}`,
		`{"a":1,"\u0061":1}`, `[{"x":{"b":1,"b":1}}]`, "\"\xff\"", `"\ud800"`, `"\ud800\u0041"`, `"\udc00\ud800"`,
		`{"a":}`, ``, `1 2`, strings.Repeat("[", 65) + strings.Repeat("]", 65),
	} {
		if got, ok := canonicalText(source); ok {
			t.Errorf("%q became %s", source, got)
		}
		b := &requestBody{mediaType: "application/json"}
		h := b.begin(rawForm)
		_, _ = h.Write([]byte(source))
		if got := b.wholePrint([]byte(source)); got != wholeText([32]byte(h.Sum(nil))) {
			t.Errorf("%q is not compared by its bytes", source)
		}
	}
	if _, ok := canonicalText(strings.Repeat("[", 64) + strings.Repeat("]", 64)); !ok {
		t.Error("64 levels are too many")
	}
}

// Canonical text means the same as its source, is a fixed point, and does not depend on the order of names or on white space.
func TestC07CanonicalTextMeansTheSameAndIsAFixedPoint(t *testing.T) {
	values := rapid.Custom(func(t *rapid.T) any { return drawJSON(t, 3) })
	rapid.Check(t, func(t *rapid.T) {
		value := values.Draw(t, "value")
		compact, err := json.Marshal(value)
		if err != nil {
			t.Skip(err.Error())
		}
		spread, _ := json.MarshalIndent(value, " ", "\t")
		first, ok := canonicalText(string(compact))
		second, again := canonicalText(string(spread))
		third, fixed := canonicalText(first)
		if !ok || !again || !fixed || first != second || first != third {
			t.Fatalf("%s: %q, %q, %q", compact, first, second, third)
		}
		var back any
		if err := json.Unmarshal([]byte(first), &back); err != nil {
			t.Fatalf("%q is no JSON: %v", first, err)
		}
		if round, _ := json.Marshal(back); !bytes.Equal(round, remarshal(compact)) {
			t.Fatalf("%s means %s", first, round)
		}
	})
}

func remarshal(text []byte) []byte {
	var value any
	_ = json.Unmarshal(text, &value)
	again, _ := json.Marshal(value)
	return again
}

func drawJSON(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
	case kind == 0:
		return nil
	case kind == 1:
		return rapid.Bool().Draw(t, "bool")
	case kind == 2:
		return rapid.Float64Range(-1e9, 1e9).Draw(t, "number")
	case kind == 3 || depth == 0:
		return rapid.String().Draw(t, "text")
	case kind == 4:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawJSON(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "names") {
		object[rapid.String().Draw(t, "name")] = drawJSON(t, depth-1)
	}
	return object
}

func FuzzCanonicalNeverPanicsAndAgreesWithItself(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"\u00e9"}]}`, `"\ud83d\ude00"`, `[`, `{"a":1,"a":2}`, `-0.5e+7`, "\x00", "1\x00", `{"a":1,}`, `[,1]`, `"\u+123"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		first, ok := canonicalText(source)
		if !ok {
			return
		}
		if !json.Valid([]byte(source)) {
			t.Errorf("%q is no JSON and became %q", source, first)
		}
		if second, again := canonicalText(first); !again || second != first {
			t.Errorf("%q became %q, then %q", source, first, second)
		}
	})
}

func TestStoredAnswersThatAreDamagedAreNotSent(t *testing.T) {
	whole := encodeResponse(201, []line{{"Location", []string{"/1"}}, {"Link", []string{"a", "b"}}}, AllowList(), []byte("body"))
	for length := range len(whole) - len("body") {
		if err := sendStored(nil, whole[:length]); err == nil { // a nil writer would panic if anything were sent
			t.Errorf("%d of %d bytes were sent", length, len(whole))
		}
	}
	if err := sendStored(nil, append([]byte{9}, whole[1:]...)); err == nil {
		t.Error("another version was sent")
	}
}

// encoding/json is the judge of what is JSON: whatever one small change makes of a text, both say the same, but for what is JSON and
// could be read in two ways.
func TestC07WhatIsJSONIsWhatEncodingJSONSaysItIs(t *testing.T) {
	texts := []string{
		`{"a":[1,-2.5e+10,0,true,false,null,"x\u00e9\n\ud83d\ude00"],"b":{"c":{}},"d":[]}`, ` [ 1 , 2 ] `, `-0.0E-1`, `"\\"`, `{"":""}`,
	}
	alphabet := []byte("{}[]\",:\\0123456789.eE+-truefalsn \n\x00\x1f\x7f\xc3\xa9u/bd")
	for _, text := range texts {
		for at := range len(text) {
			variants := []string{text[:at], text[:at] + text[at+1:]}
			for _, b := range alphabet {
				variants = append(variants, text[:at]+string([]byte{b})+text[at:], text[:at]+string([]byte{b})+text[at+1:])
			}
			for _, variant := range variants {
				_, ok := canonicalText(variant)
				if valid := json.Valid([]byte(variant)); ok && !valid || !ok && valid && unambiguous(variant) {
					t.Errorf("%q: canonical %v, valid %v", variant, ok, valid)
				}
			}
		}
	}
}

// unambiguous tells whether a valid text has neither repeated names nor strings that are no Unicode: then it survives a round trip through
// encoding/json with as many names, and without a replacement character.
func unambiguous(text string) bool {
	decoder := json.NewDecoder(strings.NewReader(text))
	names := map[string]int{}
	for {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if s, isText := token.(string); isText {
			if strings.ContainsRune(s, '\uFFFD') {
				return false
			}
			names[s]++
		}
	}
	for _, times := range names {
		if times > 1 {
			return false // perhaps a repeated name
		}
	}
	return true
}

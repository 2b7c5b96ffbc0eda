package storage

import "testing"

func BenchmarkRecord(b *testing.B) {
	r := full
	value := r.Encode()
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Encode()
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeRecord(value); err != nil {
				b.Fatal(err)
			}
		}
	})
}

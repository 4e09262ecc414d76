//! Chooses the encoding of a response from `Accept-Encoding` (RFC 9110, 12.5.3). Pure.
//!
//! The client's weights decide; among encodings with equal weights, the order of the configuration. The plain response is
//! sent if no encoding is accepted, or if the client names it with a higher weight than any encoding. An invalid entry is
//! ignored.

use howdah_config::{Compressor, Encoding};

/// The form in which a response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Not compressed.
    Identity,
    /// Compressed with this encoding.
    Encode(Encoding),
    /// The client accepts no form.
    Nothing,
}

/// In thousandths.
type Weight = u16;

/// Chooses from the configured encodings for the values of `Accept-Encoding`.
pub fn choose<'a>(accepted: impl Iterator<Item = &'a [u8]>, compressors: impl Iterator<Item = Compressor>) -> Choice {
    let accepted = EncodingWeights::read(accepted);
    let mut best: Option<(Weight, Encoding)> = None;
    for compressor in compressors {
        let weight = accepted.weight(compressor.encoding);
        if weight > best.map_or(0, |(weight, _)| weight) {
            best = Some((weight, compressor.encoding));
        }
    }
    match (best, accepted.identity) {
        (Some((weight, _)), Some(identity)) if identity > weight => Choice::Identity,
        (Some((_, encoding)), _) => Choice::Encode(encoding),
        // A plain response that is not named is acceptable, unless `*` has the weight 0.
        (None, Some(0)) => Choice::Nothing,
        (None, None) if accepted.any == Some(0) => Choice::Nothing,
        (None, _) => Choice::Identity,
    }
}

/// The weights that a client sent. If a name has several weights, the first one.
#[derive(Default)]
struct EncodingWeights {
    zstd: Option<Weight>,
    br: Option<Weight>,
    gzip: Option<Weight>,
    deflate: Option<Weight>,
    identity: Option<Weight>,
    /// The weight of `*`, for encodings that are not named.
    any: Option<Weight>,
}

// === impl EncodingWeights ===

impl EncodingWeights {
    fn read<'a>(values: impl Iterator<Item = &'a [u8]>) -> EncodingWeights {
        let mut accepted = EncodingWeights::default();
        for entry in values.flat_map(|value| value.split(|byte| *byte == b',')) {
            let mut parts = entry.split(|byte| *byte == b';');
            let name = parts.next().unwrap_or_default().trim_ascii();
            let Some(weight) = weight(parts) else { continue };
            let named = match &name.to_ascii_lowercase()[..] {
                b"zstd" => &mut accepted.zstd,
                b"br" => &mut accepted.br,
                b"gzip" | b"x-gzip" => &mut accepted.gzip,
                b"deflate" => &mut accepted.deflate,
                b"identity" => &mut accepted.identity,
                b"*" => &mut accepted.any,
                _ => continue,
            };
            named.get_or_insert(weight);
        }
        accepted
    }

    fn weight(&self, encoding: Encoding) -> Weight {
        let named = match encoding {
            Encoding::Zstd(_) => self.zstd,
            Encoding::Brotli(_) => self.br,
            Encoding::Gzip(_) => self.gzip,
            Encoding::Deflate(_) => self.deflate,
        };
        named.or(self.any).unwrap_or(0)
    }
}

/// The weight in an entry's parameters; 1 if it has no weight, `None` if the weight is invalid.
fn weight<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> Option<Weight> {
    for parameter in parameters {
        let mut pair = parameter.splitn(2, |byte| *byte == b'=');
        let name = pair.next().unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"q") {
            return quality(pair.next()?.trim_ascii());
        }
    }
    Some(1000)
}

/// 0 to 1, with up to three decimals (RFC 9110, 12.4.2).
fn quality(text: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match text {
        [whole] | [whole, b'.'] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    if !whole.is_ascii_digit() || !decimals.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |at: usize| decimals.get(at).map_or(0, |digit| Weight::from(digit - b'0'));
    let weight = Weight::from(whole - b'0') * 1000 + digit(0) * 100 + digit(1) * 10 + digit(2);
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Choice::{Encode, Identity, Nothing};

    const ZSTD: Encoding = Encoding::Zstd(3);
    const BR: Encoding = Encoding::Brotli(4);
    const GZIP: Encoding = Encoding::Gzip(6);

    fn choose_from(encodings: &[Encoding], accepted: &[&str]) -> Choice {
        let compressors = encodings.iter().map(|encoding| Compressor { encoding: *encoding, min_length: 0 });
        choose(accepted.iter().map(|value| value.as_bytes()), compressors)
    }

    #[test]
    fn the_clients_weights_have_priority_over_our_order() {
        let table: &[(&[&str], Choice)] = &[
            (&[], Identity),
            (&[""], Identity),
            (&["gzip"], Encode(GZIP)),
            (&["GZIP"], Encode(GZIP)),
            (&["x-gzip"], Encode(GZIP)),
            (&["gzip, deflate, br, zstd"], Encode(ZSTD)),
            (&["gzip, deflate, br"], Encode(BR)),
            (&["gzip", "br"], Encode(BR)),
            (&["gzip;q=1.0, br;q=0.9, zstd;q=0.8"], Encode(GZIP)),
            (&["br;q=0.5, gzip;q=0.500"], Encode(BR)),
            (&["br;q=0.499, gzip;q=0.5"], Encode(GZIP)),
            (&["gzip ; q=0.1 , br ;q= 0.2"], Encode(BR)),
            (&["gzip;Q=0.1, br;q=0.05"], Encode(GZIP)),
            (&["*"], Encode(ZSTD)),
            (&["zstd;q=0, *"], Encode(BR)),
            (&["*;q=0.1, gzip"], Encode(GZIP)),
            (&["gzip;q=0"], Identity),
            (&["gzip;q=0.000"], Identity),
            (&["deflate, compress"], Identity),
            (&["identity"], Identity),
            (&["gzip, identity"], Encode(GZIP)),
            (&["gzip;q=0.5, identity"], Identity),
            (&["gzip;q=0.5, identity;q=0.4"], Encode(GZIP)),
            (&["gzip;q=0.5, *;q=0.8"], Encode(ZSTD)),
            (&["gzip;q=0, identity;q=0"], Nothing),
            (&["identity;q=0"], Nothing),
            (&["*;q=0"], Nothing),
            (&["*;q=0, identity"], Identity),
            (&["*;q=0, identity;q=0.1"], Identity),
            (&["*;q=0, gzip"], Encode(GZIP)),
            (&["deflate, *;q=0"], Nothing),
            (&["identity;q=0, gzip"], Encode(GZIP)),
            // An entry with an invalid weight is ignored.
            (&["gzip;q=2"], Identity),
            (&["gzip;q=1.001"], Identity),
            (&["gzip;q=0.1234"], Identity),
            (&["gzip;q=-1"], Identity),
            (&["gzip;q="], Identity),
            (&["gzip;q"], Identity),
            (&["gzip;q=.5"], Identity),
            (&["gzip;q=1."], Encode(GZIP)),
            (&["gzip;q=x, br;q=0.1"], Encode(BR)),
            (&["gzip;level=9"], Encode(GZIP)),
            (&[",,gzip,,"], Encode(GZIP)),
            (&["gzip;q=0, gzip"], Identity),
            (&["gzipped, xgzip, br2"], Identity),
        ];
        for (accepted, expected) in table {
            assert_eq!(choose_from(&[ZSTD, BR, GZIP], accepted), *expected, "{accepted:?}");
        }
    }

    #[test]
    fn equal_weights_follow_the_order_of_the_configuration() {
        assert_eq!(choose_from(&[GZIP, ZSTD], &["zstd, gzip"]), Encode(GZIP));
        assert_eq!(choose_from(&[Encoding::Deflate(1)], &["gzip, deflate"]), Encode(Encoding::Deflate(1)));
        assert_eq!(choose_from(&[], &["gzip"]), Identity);
    }
}

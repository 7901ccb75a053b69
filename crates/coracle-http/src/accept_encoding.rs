//! `Accept-Encoding`: in which codings a peer takes an answer, and which of them it likes best (RFC 9110, 12.5.3).

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coding {
    /// Brotli (RFC 7932).
    Br,
    /// Zstandard (RFC 8878).
    Zstd,
    /// What gzip(1) writes (RFC 1952).
    Gzip,
}

impl Coding {
    /// All of them, the one that compresses best first.
    pub const ALL: [Coding; 3] = [Coding::Br, Coding::Zstd, Coding::Gzip];

    /// Its name in a header.
    ///
    /// ```
    /// assert_eq!(coracle_http::Coding::Zstd.name(), "zstd");
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Coding::Br => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// What a file's name ends in that is coded so.
    ///
    /// ```
    /// assert_eq!(coracle_http::Coding::Gzip.extension(), "gz");
    /// ```
    pub fn extension(self) -> &'static str {
        match self {
            Coding::Br => "br",
            Coding::Zstd => "zst",
            Coding::Gzip => "gz",
        }
    }
}

/// What a request says about codings, in thousandths of a preference.
///
/// ```
/// use coracle_http::{AcceptEncoding, Coding};
///
/// let peer = AcceptEncoding::parse([b"gzip;q=0.8, br"]);
/// assert_eq!(peer.choose(&[Coding::Gzip, Coding::Br]), Some(Coding::Br));
/// assert_eq!(peer.choose(&[Coding::Gzip]), Some(Coding::Gzip));
/// assert_eq!(peer.choose(&[Coding::Zstd]), None); // the answer goes out as it is
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AcceptEncoding {
    br: Option<u16>,
    zstd: Option<u16>,
    gzip: Option<u16>,
    identity: Option<u16>,
    /// `*`: all that are not named.
    others: Option<u16>,
}

impl AcceptEncoding {
    /// Reads the values of all fields `Accept-Encoding` of a request. Whoever sent none wants no coding.
    /// Elements that are malformed, or name another coding, do not count.
    pub fn parse<I>(values: I) -> AcceptEncoding
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut accept = AcceptEncoding::default();
        values.into_iter().for_each(|value| accept.add_field(value.as_ref()));
        accept
    }

    /// Adds the value of one field.
    pub(crate) fn add_field(&mut self, value: &[u8]) {
        value.split(|&byte| byte == b',').for_each(|element| self.add(element));
    }

    fn add(&mut self, element: &[u8]) {
        let Some((name, quality)) = std::str::from_utf8(element).ok().and_then(parse_element)
        else {
            return;
        };
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let place = match name {
            _ if is("gzip") || is("x-gzip") => &mut self.gzip,
            _ if is("br") => &mut self.br,
            _ if is("zstd") => &mut self.zstd,
            _ if is("identity") => &mut self.identity,
            "*" => &mut self.others,
            _ => return,
        };
        // Who names one twice means the better: both cannot be meant, and the first may be a proxy's.
        *place = Some(place.map_or(quality, |before| before.max(quality)));
    }

    /// How much it is liked, of 1,000; 0 if not at all.
    ///
    /// ```
    /// # use coracle_http::{AcceptEncoding, Coding};
    /// let peer = AcceptEncoding::parse([b"br;q=0, *;q=0.5"]);
    /// assert_eq!((peer.quality(Coding::Br), peer.quality(Coding::Gzip)), (0, 500));
    /// ```
    pub fn quality(&self, coding: Coding) -> u16 {
        let named = match coding {
            Coding::Br => self.br,
            Coding::Zstd => self.zstd,
            Coding::Gzip => self.gzip,
        };
        named.or(self.others).unwrap_or(0)
    }

    /// The best of those that can be `offered`, in our order of preference, or none: then the answer goes out
    /// as it is.
    pub fn choose(&self, offered: &[Coding]) -> Option<Coding> {
        let mut best: Option<(Coding, u16)> = None;
        for &coding in offered {
            let quality = self.quality(coding);
            if quality > 0 && best.is_none_or(|(_, before)| quality > before) {
                best = Some((coding, quality));
            }
        }
        // Uncoded is always acceptable; it is better only to those who say so.
        let (coding, quality) = best?;
        (quality >= self.identity.unwrap_or(0)).then_some(coding)
    }
}

/// `name` or `name;q=0.5`, as name and thousandths.
fn parse_element(element: &str) -> Option<(&str, u16)> {
    let (name, parameter) = match element.split_once(';') {
        Some((name, parameter)) => (name, Some(parameter)),
        None => (element, None),
    };
    let quality = match parameter {
        None => 1000,
        Some(parameter) => {
            let (key, value) = parameter.trim_matches(OWS).split_once('=')?;
            if !key.eq_ignore_ascii_case("q") {
                return None;
            }
            parse_quality(value)?
        }
    };
    let name = name.trim_matches(OWS);
    (!name.is_empty()).then_some((name, quality))
}

/// Optional white space (RFC 9110, 5.6.3).
const OWS: [char; 2] = [' ', '\t'];

/// `0`, `0.5`, `1.000`: at most three digits behind the point, and never more than one.
fn parse_quality(text: &str) -> Option<u16> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digit = |at| fraction.as_bytes().get(at).map_or(0, |byte| u16::from(byte - b'0'));
    let thousandths = digit(0) * 100 + digit(1) * 10 + digit(2);
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn choose(value: &str) -> Option<Coding> {
        AcceptEncoding::parse([value]).choose(&Coding::ALL)
    }

    #[test]
    fn n6_best_coding_is_chosen_by_quality_then_by_us() {
        for (value, expected) in [
            ("gzip, deflate, br, zstd", Some(Coding::Br)),
            ("gzip, deflate", Some(Coding::Gzip)),
            ("gzip;q=1.0, br;q=0.5", Some(Coding::Gzip)),
            ("GZIP", Some(Coding::Gzip)),
            ("x-gzip", Some(Coding::Gzip)),
            ("zstd ; q=0.001", Some(Coding::Zstd)),
            ("*", Some(Coding::Br)),
            ("*, br;q=0", Some(Coding::Zstd)),
            ("br;q=0, zstd;q=0, gzip", Some(Coding::Gzip)),
            ("gzip;q=0.5, identity;q=0.1", Some(Coding::Gzip)),
            ("gzip, identity", Some(Coding::Gzip)),
        ] {
            assert_eq!(choose(value), expected, "{value}");
        }
    }

    #[test]
    fn n6_whoever_takes_no_coding_gets_none() {
        for value in [
            "",
            "identity",
            "deflate",
            "*;q=0",
            "gzip;q=0",
            "br;q=0.000",
            "gzip;q=0, br;q=0, zstd;q=0.0, *",
            "gzip;q=0.1, identity;q=0.2",
            "gzip;q=2",
            "gzip;q=-1",
            "gzip;q=0.0001",
            "gzip;q=1.1",
            "gzip;q=",
            "gzip;q",
            "gzip;x=1",
            "gzip q=1",
            ";q=1",
            "gzippy",
            "gzip;q=0.5;q=1",
            "gz\u{131}p",
        ] {
            assert_eq!(choose(value), None, "{value}");
        }
        assert_eq!(AcceptEncoding::parse([b"gz\xffip"]).choose(&Coding::ALL), None);
        assert_eq!(AcceptEncoding::default().choose(&Coding::ALL), None);
    }

    #[test]
    fn n6_several_fields_are_one_list() {
        let peer = AcceptEncoding::parse(["gzip", "br;q=0.5"]);
        assert_eq!(peer.choose(&Coding::ALL), Some(Coding::Gzip));
        assert_eq!(peer.choose(&[Coding::Br]), Some(Coding::Br));
        assert_eq!(peer.choose(&[]), None);
    }

    proptest! {
        #[test]
        fn n6_what_is_chosen_was_named_and_not_refused(
            value in "((gzip|br|zstd|identity|\\*|x)(;q=[01](\\.[0-9]{0,4})?)?,? ?){0,5}",
        ) {
            let peer = AcceptEncoding::parse([&value]);
            if let Some(coding) = peer.choose(&Coding::ALL) {
                prop_assert!(value.contains(coding.name()) || value.contains('*'), "{value}");
                let quality = peer.quality(coding);
                prop_assert!(quality > 0 && Coding::ALL.iter().all(|&other| peer.quality(other) <= quality));
            }
        }

        #[test]
        fn n6_whatever_is_sent_is_an_answer(value: Vec<u8>) {
            AcceptEncoding::parse([value]).choose(&Coding::ALL);
        }
    }
}

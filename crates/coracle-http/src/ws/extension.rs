//! Which extension both sides agree on: permessage-deflate with its parameters, or none. RFC 6455, 9.1; RFC 7692,
//! 7.1.

use super::Deflate;
use super::deflate::{Agreed, LARGEST_WINDOW};

const NAME: &str = "permessage-deflate";

/// What of a header is looked at: nobody offers more.
const LIMIT_OFFERS: usize = 16;

/// The parameters of permessage-deflate, as they are offered or accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Parameters {
    server_forgets: bool,
    client_forgets: bool,
    server_bits: Option<u8>,
    /// The inner is the value, of which an offer may have none.
    client_bits: Option<Option<u8>>,
}

/// What a server answers to these offers, and what was agreed on; `None` if nothing is.
pub(crate) fn accept<'a>(
    values: impl Iterator<Item = &'a str>,
    deflate: &Deflate,
) -> Option<(String, Agreed)> {
    let offers = values.flat_map(split).take(LIMIT_OFFERS);
    let offer = offers.filter_map(parameters).find(|offer| {
        // zlib cannot compress with the smallest window.
        offer.server_bits != Some(8)
    })?;
    let server_forgets = offer.server_forgets || !deflate.keep_context;
    let client_forgets = offer.client_forgets || !deflate.keep_context;
    let mut answer = NAME.to_owned();
    if server_forgets {
        answer.push_str("; server_no_context_takeover");
    }
    if client_forgets {
        answer.push_str("; client_no_context_takeover");
    }
    if let Some(bits) = offer.server_bits {
        answer.push_str(&format!("; server_max_window_bits={bits}"));
    }
    let agreed = Agreed {
        window_bits: offer.server_bits.unwrap_or(LARGEST_WINDOW),
        keeps_own: !server_forgets,
        keeps_theirs: !client_forgets,
        level: deflate.level,
        least_bytes: deflate.least_bytes,
    };
    Some((answer, agreed))
}

/// What a client offers.
pub(crate) fn offer(deflate: &Deflate) -> &'static str {
    match deflate.keep_context {
        true => "permessage-deflate",
        false => "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
    }
}

/// What a client makes of the answer to its offer.
///
/// # Errors
/// It was answered something that it has not offered.
pub(crate) fn accepted<'a>(
    values: impl Iterator<Item = &'a str>,
    deflate: Option<&Deflate>,
) -> Result<Option<Agreed>, &'static str> {
    let mut answers = values.flat_map(split).filter(|answer| !answer.is_empty());
    let Some(answer) = answers.next() else { return Ok(None) };
    let Some(deflate) = deflate else { return Err("an extension was not offered") };
    if answers.next().is_some() {
        return Err("there is more than one extension");
    }
    let Some(parameters) = parameters(answer) else {
        return Err("an extension is not what was offered");
    };
    if parameters.client_bits.is_some() {
        return Err("client_max_window_bits was not offered");
    }
    Ok(Some(Agreed {
        window_bits: LARGEST_WINDOW,
        keeps_own: deflate.keep_context && !parameters.client_forgets,
        keeps_theirs: !parameters.server_forgets,
        level: deflate.level,
        least_bytes: deflate.least_bytes,
    }))
}

/// The elements of a list. None of ours has a comma in a quoted string.
fn split(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(|element| element.trim_matches([' ', '\t']))
}

/// The parameters of an element, if it is permessage-deflate and all of them are known and make sense.
fn parameters(element: &str) -> Option<Parameters> {
    let mut parts = element.split(';').map(|part| part.trim_matches([' ', '\t']));
    if !parts.next()?.eq_ignore_ascii_case(NAME) {
        return None;
    }
    let mut parameters = Parameters::default();
    for part in parts {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(bits(value.trim_start())?)),
            None => (part, None),
        };
        let fresh = match (name, value) {
            ("server_no_context_takeover", None) => {
                !std::mem::replace(&mut parameters.server_forgets, true)
            }
            ("client_no_context_takeover", None) => {
                !std::mem::replace(&mut parameters.client_forgets, true)
            }
            ("server_max_window_bits", Some(bits)) => {
                parameters.server_bits.replace(bits).is_none()
            }
            ("client_max_window_bits", bits) => parameters.client_bits.replace(bits).is_none(),
            _ => false,
        };
        if !fresh {
            return None;
        }
    }
    Some(parameters)
}

/// From 8 to 15, without a zero in front; perhaps in quotes.
fn bits(value: &str) -> Option<u8> {
    let plain = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
    if plain.is_empty()
        || plain.starts_with('0')
        || !plain.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    plain.parse().ok().filter(|bits| (8..=15).contains(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(offers: &str, deflate: &Deflate) -> Option<String> {
        accept(std::iter::once(offers), deflate).map(|(answer, _)| answer)
    }

    #[test]
    fn k3_offers_have_their_answers() {
        let keep = Deflate { keep_context: true, ..Deflate::default() };
        let forget = Deflate::default();
        for (offers, kept, forgotten) in [
            ("permessage-deflate", Some(""), Some("sc")),
            ("permessage-deflate; client_max_window_bits", Some(""), Some("sc")),
            ("Permessage-Deflate;client_max_window_bits=10", Some(""), Some("sc")),
            ("permessage-deflate; server_no_context_takeover", Some("s"), Some("sc")),
            ("permessage-deflate; client_no_context_takeover", Some("c"), Some("sc")),
            ("permessage-deflate; server_max_window_bits=9", Some("9"), Some("sc9")),
            ("permessage-deflate; server_max_window_bits=\"10\"", Some("10"), Some("sc10")),
            ("permessage-deflate; server_max_window_bits = 15", Some("15"), Some("sc15")),
            // The first that can be met.
            (
                "permessage-deflate; server_max_window_bits=8, permessage-deflate",
                Some(""),
                Some("sc"),
            ),
            (
                "x-webkit-deflate-frame, permessage-deflate; a, permessage-deflate",
                Some(""),
                Some("sc"),
            ),
            ("permessage-deflate; server_max_window_bits=8", None, None),
            ("permessage-deflate; server_max_window_bits", None, None),
            ("permessage-deflate; server_max_window_bits=7", None, None),
            ("permessage-deflate; server_max_window_bits=16", None, None),
            ("permessage-deflate; server_max_window_bits=09", None, None),
            ("permessage-deflate; server_max_window_bits=+9", None, None),
            ("permessage-deflate; client_max_window_bits=7", None, None),
            ("permessage-deflate; client_max_window_bits=", None, None),
            ("permessage-deflate; client_no_context_takeover=1", None, None),
            (
                "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
                None,
                None,
            ),
            ("permessage-deflate; unknown", None, None),
            ("permessage-deflate;", None, None),
            ("permessage", None, None),
            ("", None, None),
        ] {
            let expected = |short: Option<&str>| {
                short.map(|short| {
                    let mut text = NAME.to_owned();
                    for (key, name) in [("s", "server"), ("c", "client")] {
                        if short.contains(key) {
                            text.push_str(&format!("; {name}_no_context_takeover"));
                        }
                    }
                    let digits = short.trim_start_matches(['s', 'c']);
                    if !digits.is_empty() {
                        text.push_str(&format!("; server_max_window_bits={digits}"));
                    }
                    text
                })
            };
            assert_eq!(answer(offers, &keep), expected(kept), "{offers}");
            assert_eq!(answer(offers, &forget), expected(forgotten), "{offers}");
        }
    }

    #[test]
    fn k3_client_takes_only_what_it_has_offered() {
        let keep = Deflate { keep_context: true, ..Deflate::default() };
        let forget = Deflate::default();
        let check = |answer: &'static str, deflate| accepted(std::iter::once(answer), deflate);
        assert_eq!(check("", None), Ok(None));
        assert_eq!(check("", Some(&keep)), Ok(None));
        let agreed = check("permessage-deflate", Some(&keep)).unwrap().unwrap();
        assert!(agreed.keeps_own && agreed.keeps_theirs);
        let agreed = check("permessage-deflate", Some(&forget)).unwrap().unwrap();
        assert!(!agreed.keeps_own && agreed.keeps_theirs, "the server may keep its own");
        let small = "permessage-deflate; server_max_window_bits=8; client_no_context_takeover";
        assert!(!check(small, Some(&keep)).unwrap().unwrap().keeps_own);
        assert!(check("permessage-deflate", None).is_err());
        for wrong in [
            "permessage-deflate; client_max_window_bits=10",
            "permessage-deflate; unknown",
            "permessage-deflate, permessage-deflate",
            "another",
            "permessage-deflate; server_no_context_takeover=1",
        ] {
            assert!(check(wrong, Some(&keep)).is_err(), "{wrong}");
        }
    }
}

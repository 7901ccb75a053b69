//! Which coding a client likes best: `gzip, br;q=0.9, zstd;q=0`.

/// How an answer can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

/// In the order we like them, where the client does not care.
const ALL: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

impl Coding {
    /// As it is called in a header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Coding::Zstd => "zstd",
            Coding::Brotli => "br",
            Coding::Gzip => "gzip",
        }
    }
}

/// The best coding by the value of `Accept-Encoding`; none if it is not to be coded. (RFC 9110, 12.5.3.)
pub(crate) fn choose(accepted: &str) -> Option<Coding> {
    let weight = |name: &str| {
        let named = list(accepted).find(|(other, _)| is_named(other, name));
        named
            .or_else(|| list(accepted).find(|(other, _)| *other == "*"))
            .map_or(0, |(_, weight)| weight)
    };
    // What is not named may come as it is, but only if nothing that is named is liked better.
    let identity = list(accepted)
        .find(|(name, _)| name.eq_ignore_ascii_case("identity"))
        .map_or(0, |(_, weight)| weight);
    let mut best = None;
    for coding in ALL {
        let weight = weight(coding.name());
        if weight > best.map_or(0, |(_, best)| best) {
            best = Some((coding, weight));
        }
    }
    best.filter(|(_, weight)| *weight >= identity).map(|(coding, _)| coding)
}

fn is_named(text: &str, name: &str) -> bool {
    // The old name of gzip is still to be understood.
    text.eq_ignore_ascii_case(name) || (name == "gzip" && text.eq_ignore_ascii_case("x-gzip"))
}

/// The codings of a list, with their weights in thousandths. What is none is left out.
fn list(value: &str) -> impl Iterator<Item = (&str, u32)> {
    value.split(',').filter_map(|item| {
        let (name, params) = item.split_once(';').unwrap_or((item, ""));
        let name = name.trim_matches([' ', '\t']);
        let params = params.trim_matches([' ', '\t']);
        let weight = match params.split_once('=') {
            None if params.is_empty() => 1000,
            Some((q, weight)) if q.trim_matches([' ', '\t']).eq_ignore_ascii_case("q") => {
                thousandths(weight)?
            }
            _ => return None,
        };
        (!name.is_empty()).then_some((name, weight))
    })
}

/// `0.7` is 700. At most three digits behind the point, and at most one.
fn thousandths(text: &str) -> Option<u32> {
    let text = text.trim_matches([' ', '\t']);
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if !matches!(whole, "0" | "1")
        || part.len() > 3
        || !part.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let weight: u32 = format!("{whole}{part:0<3}").parse().ok()?;
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn j11_the_best_coding_is_chosen() {
        for (accepted, expected) in [
            ("gzip, deflate, br, zstd", Some(Coding::Zstd)),
            ("gzip, deflate, br", Some(Coding::Brotli)),
            ("gzip", Some(Coding::Gzip)),
            ("X-GZIP", Some(Coding::Gzip)),
            ("gzip;q=1, br;q=0.9", Some(Coding::Gzip)),
            ("gzip;q=0.001", Some(Coding::Gzip)),
            ("*", Some(Coding::Zstd)),
            ("*, zstd;q=0", Some(Coding::Brotli)),
            ("*;q=0", None),
            ("gzip;q=0", None),
            ("gzip;q=0.000", None),
            ("identity, gzip;q=0.5", None),
            ("identity;q=0.5, gzip;q=0.5", Some(Coding::Gzip)),
            ("deflate", None),
            ("", None),
            ("gzip;q=2", None),
            ("gzip;q=-1", None),
            ("gzip;q=", None),
            ("gzip;level=9", None),
            ("gzip ; q = 1", Some(Coding::Gzip)),
            (",,;;,=,gzip", Some(Coding::Gzip)),
        ] {
            assert_eq!(choose(accepted), expected, "{accepted}");
        }
    }

    proptest! {
        /// A twin with floating-point numbers and a sort.
        #[test]
        fn j11_the_choice_is_that_of_the_twin(list in proptest::collection::vec(
            (prop_oneof![Just("gzip"), Just("br"), Just("zstd"), Just("identity"), Just("*"), Just("deflate")],
             0_u32..=10), 0..6,
        )) {
            let text: Vec<String> =
                list.iter().map(|(name, tenths)| format!("{name};q={}.{}", tenths / 10, tenths % 10)).collect();
            let of = |name: &str| {
                let named = list.iter().find(|(other, _)| *other == name);
                let named = named.or_else(|| list.iter().find(|(other, _)| *other == "*" && name != "identity"));
                named.map_or(0.0, |(_, tenths)| f64::from(*tenths) / 10.0)
            };
            let mut all = [(of("zstd"), 3), (of("br"), 2), (of("gzip"), 1)];
            all.sort_by(|a, b| b.partial_cmp(a).unwrap());
            let best = if all[0].0 > 0.0 && all[0].0 >= of("identity") { all[0].1 } else { 0 };
            let ours = match choose(&text.join(", ")) {
                Some(Coding::Zstd) => 3,
                Some(Coding::Brotli) => 2,
                Some(Coding::Gzip) => 1,
                None => 0,
            };
            prop_assert_eq!(ours, best, "{:?}", text);
        }
    }
}

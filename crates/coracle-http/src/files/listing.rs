//! The page that lists a directory: readable, by day and by night, without JavaScript.
//!
//! Names are somebody else's: each is escaped where it is shown and encoded where it is linked. A link begins
//! with `./`, so that no name is taken for another host or for a script.

use crate::calendar::Moment;
use crate::escape::push_escaped;
use std::fmt::Write as _;

/// One line of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: String,
    /// `None` for a directory.
    pub(super) length: Option<u64>,
    /// Seconds since 1970.
    pub(super) modified: i64,
}

/// Directories first, then by name as people sort: without regard to case.
pub(super) fn sort(lines: &mut [Line]) {
    lines.sort_by_cached_key(|line| {
        (line.length.is_some(), line.name.to_lowercase(), line.name.clone())
    });
}

/// The page. `path` is the path below the root, decoded, without slashes at its ends; `more` says that not all
/// names are there.
pub(super) fn page(path: &str, lines: &[Line], more: bool) -> String {
    let mut page = String::with_capacity(2048 + lines.len() * 192);
    let title = if path.is_empty() { "/".to_owned() } else { format!("/{path}/") };
    page.push_str(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>",
    );
    push_escaped(&mut page, &title);
    page.push_str("</title>\n<style>\n");
    page.push_str(STYLE);
    page.push_str("</style>\n</head>\n<body>\n<main>\n<h1>");
    crumbs(&mut page, path);
    page.push_str("</h1>\n<table>\n<thead><tr><th scope=\"col\">Name</th>");
    page.push_str("<th scope=\"col\" class=\"size\">Size</th>");
    page.push_str("<th scope=\"col\">Modified (UTC)</th></tr></thead>\n<tbody>\n");
    if !path.is_empty() {
        page.push_str(
            "<tr><td><a href=\"../\">../</a></td><td class=\"size\"></td><td></td></tr>\n",
        );
    }
    lines.iter().for_each(|line| row(&mut page, line));
    page.push_str("</tbody>\n</table>\n<p>");
    summary(&mut page, lines, more);
    page.push_str("</p>\n</main>\n</body>\n</html>\n");
    page
}

const STYLE: &str = "\
:root {
  color-scheme: light dark;
  --text: #1c2330; --faint: #5d6778; --line: #dfe3ea; --link: #0b57a4; --ground: #fdfdfb;
}
@media (prefers-color-scheme: dark) {
  :root { --text: #e3e7ee; --faint: #98a2b3; --line: #2c333f; --link: #7fb7f2; --ground: #14181f; }
}
body { margin: 0; background: var(--ground); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; font-weight: 600; overflow-wrap: anywhere; }
table { width: 100%; border-collapse: collapse; }
th { text-align: left; color: var(--faint); font-weight: 500; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td { font-variant-numeric: tabular-nums; }
td:first-child { width: 100%; overflow-wrap: anywhere; }
td:not(:first-child) { white-space: nowrap; color: var(--faint); }
.size { text-align: right; }
a { color: var(--link); text-decoration: none; }
a:hover, a:focus { text-decoration: underline; }
tbody tr:hover { background: color-mix(in srgb, var(--link) 7%, transparent); }
p { color: var(--faint); }
";

/// The path as a trail of links: each leads to the directory it names.
fn crumbs(page: &mut String, path: &str) {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let up = |levels: usize| if levels == 0 { "./".to_owned() } else { "../".repeat(levels) };
    let _ = write!(page, "<a href=\"{}\">/</a>", up(names.len()));
    for (at, name) in names.iter().enumerate() {
        let _ = write!(page, "<a href=\"{}\">", up(names.len() - 1 - at));
        push_escaped(page, name);
        page.push_str("/</a>");
    }
}

fn row(page: &mut String, line: &Line) {
    let slash = if line.length.is_none() { "/" } else { "" };
    page.push_str("<tr><td><a href=\"./");
    encode(page, &line.name);
    page.push_str(slash);
    page.push_str("\">");
    push_escaped(page, &line.name);
    page.push_str(slash);
    page.push_str("</a></td><td class=\"size\">");
    if let Some(length) = line.length {
        page.push_str(&size(length));
    }
    page.push_str("</td><td>");
    page.push_str(&time(line.modified));
    page.push_str("</td></tr>\n");
}

fn summary(page: &mut String, lines: &[Line], more: bool) {
    let files = lines.iter().filter(|line| line.length.is_some()).count();
    let count = |count: usize, one: &str, many: &str| {
        format!("{count} {}", if count == 1 { one } else { many })
    };
    let directories = count(lines.len() - files, "directory", "directories");
    let _ = write!(page, "{directories}, {}", count(files, "file", "files"));
    if more {
        page.push_str("; there are more, which are not listed");
    }
}

/// A name, as a segment of a path: everything but letters, digits and `-._~` is encoded.
pub(super) fn encode(into: &mut String, name: &str) {
    for &byte in name.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(byte as char);
        } else {
            let _ = write!(into, "%{byte:02X}");
        }
    }
}

/// `0 B`, `1.5 KiB`, `12 MiB`: two digits that mean something, and no more than four.
fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1023.5 {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {}", ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit])
}

/// `2026-11-16 04:31`, in UTC. Nothing for a year that does not have four digits.
fn time(seconds: i64) -> String {
    let Moment { year, month, day, hour, minute, .. } = Moment::of(seconds);
    if !(0..=9999).contains(&year) {
        return String::new();
    }
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(name: &str) -> Line {
        Line { name: name.to_owned(), length: Some(1), modified: 0 }
    }

    #[test]
    fn n5_names_are_escaped_and_encoded() {
        let name = "<script>alert(\"&'\")</script>";
        let shown =
            page(name, &[file(name), file("javascript:alert(1)"), file("a b?c#d%e")], false);
        assert!(!shown.contains("<script>"), "{shown}");
        assert!(shown.contains("&lt;script&gt;alert(&quot;&amp;&#39;&quot;)&lt;/script&gt;"));
        assert!(shown.contains("href=\"./javascript%3Aalert%281%29\""));
        assert!(shown.contains("href=\"./a%20b%3Fc%23d%25e\""));
    }

    #[test]
    fn n5_listing_is_sorted_directories_first() {
        let directory = |name: &str| Line { length: None, ..file(name) };
        let mut lines = [file("b"), directory("z"), file("A"), file("a"), directory("Y")];
        sort(&mut lines);
        let names: Vec<_> = lines.iter().map(|line| line.name.as_str()).collect();
        assert_eq!(names, ["Y", "z", "A", "a", "b"]);
        let shown = page("", &lines, false);
        assert!(
            shown.contains("<a href=\"./Y/\">Y/</a>") && shown.contains("<a href=\"./b\">b</a>")
        );
        assert!(shown.contains("2 directories, 3 files"));
    }

    #[test]
    fn n5_listing_leads_up_but_not_out() {
        assert!(!page("", &[], false).contains("../"), "there is nothing above the top");
        let shown = page("a/b", &[], true);
        assert!(
            shown.contains("<a href=\"../../\">/</a><a href=\"../\">a/</a><a href=\"./\">b/</a>")
        );
        assert!(shown.contains("<td><a href=\"../\">../</a>"));
        assert!(shown.contains("there are more"));
        assert!(shown.contains("0 directories, 0 files"));
    }

    #[test]
    fn n5_sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 10, "10 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn n5_times_are_dates() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (1_709_164_800, "2024-02-29 00:00"),
            (4_107_542_400, "2100-03-01 00:00"),
            (-1, "1969-12-31 23:59"),
            (253_402_300_799, "9999-12-31 23:59"),
            (253_402_300_800, ""),
            (i64::MIN, ""),
            (i64::MAX, ""),
        ] {
            assert_eq!(time(seconds), text, "{seconds}");
        }
    }

    proptest! {
        /// The date that HTTP has for the same second, written by somebody else.
        #[test]
        fn n5_times_agree_with_http(seconds in 0i64..253_402_300_800) {
            let moment = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds as u64);
            let http = httpdate::fmt_http_date(moment); // Sun, 06 Nov 1994 08:49:37 GMT
            let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
            let month = months.find(&http[8..11]).unwrap() / 3 + 1;
            let expected = format!("{}-{month:02}-{} {}", &http[12..16], &http[5..7], &http[17..22]);
            prop_assert_eq!(time(seconds), expected);
        }

        #[test]
        fn n5_no_name_breaks_out_of_the_page(name in "[^/]{1,20}") {
            let plain = page("x", &[file("n")], false);
            let shown = page("x", &[file(&name)], false);
            let tags = |page: &str| (page.matches('<').count(), page.matches('"').count());
            prop_assert_eq!(tags(&shown), tags(&plain));
        }
    }
}

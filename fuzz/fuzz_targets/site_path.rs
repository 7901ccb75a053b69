//! Paths of requests: what is let through stays below the directory, and nothing panics.
#![no_main]

use coracle_http::files::{DotFiles, SitePath};
use libfuzzer_sys::fuzz_target;
use std::path::{Component, Path};

fuzz_target!(|path: &str| {
    for dot_files in [DotFiles::Hide, DotFiles::WellKnown, DotFiles::Show] {
        let Ok(parsed) = SitePath::parse(path, dot_files) else { continue };
        let below = parsed.relative();
        let names: Vec<_> = Path::new(below).components().collect();
        assert!(names.iter().all(|name| matches!(name, Component::Normal(_))), "{below:?}");
        assert!(!below.contains(['\0', '\\', '\r', '\n']) && !below.contains("//"), "{below:?}");
        assert!(Path::new("/root").join(below).starts_with("/root"));
        if dot_files == DotFiles::Hide {
            assert!(!below.starts_with('.') && !below.contains("/."), "{below:?}");
        }
        // Written down again, it is the same path: it was decoded once, and not twice.
        let mut again = String::from("/");
        for byte in below.bytes() {
            match byte {
                b'/' => again.push('/'),
                byte => again.push_str(&format!("%{byte:02x}")),
            }
        }
        if parsed.is_directory() && !below.is_empty() {
            again.push('/');
        }
        let again = SitePath::parse(&again, dot_files).expect("what was let through once");
        assert_eq!(again, parsed);
    }
});

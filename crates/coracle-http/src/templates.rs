//! HTML from templates, by minijinja, with everything escaped that is not said to be HTML.
//!
//! Why minijinja and not askama: templates are files that can be changed without a compiler, which a server that
//! people run needs (error pages, listings); it has one dependency, serde, and no macros to build; and what it
//! does is bounded (fuel, recursion). Who wants templates that the compiler checks takes askama:
//! `Html(page.render()?)`.

use crate::{Html, Problem};
use minijinja::{AutoEscape, Environment};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock, RwLockReadGuard};

/// A context for a template, written in place: `context! { name => "ahab", posts => Serde(posts) }`.
pub use minijinja::context;
/// A value of a type of yours that `serde` can write, inside a [`context!`].
pub use minijinja::value::Serde;

/// A template may take so many steps: enough for a table of some ten thousand rows, and not for ever.
const LIMIT_STEPS: u64 = 10_000_000;

/// So deep templates may include, extend and call each other: a level costs stack, of which a coroutine has 256
/// KiB.
const LIMIT_DEPTH: usize = 64;

/// A set of templates.
///
/// ```
/// use coracle_http::{Html, Problem, Templates, context};
///
/// let mut templates = Templates::new();
/// templates.add("hello.html", "<h1>hello, {{ name }}</h1>")?;
///
/// let Html(page) = templates.render("hello.html", context! { name => "<script>" })?;
/// assert_eq!(page, "<h1>hello, &lt;script&gt;</h1>");
/// # Ok::<(), Problem>(())
/// ```
///
/// The context is anything that `serde` can write: a struct of yours, or what [`context!`] makes.
///
/// What is in a value is escaped, whatever the template is called. A handler keeps them in its state; a problem is
/// a 500, whose reason, with the line, is in the log.
#[derive(Clone)]
pub struct Templates {
    folder: Option<Arc<PathBuf>>,
    environment: Arc<RwLock<Environment<'static>>>,
}

impl Templates {
    /// None yet.
    pub fn new() -> Templates {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        environment.set_undefined_behavior(minijinja::UndefinedBehavior::SemiStrict);
        environment.set_fuel(Some(LIMIT_STEPS));
        environment.set_recursion_limit(LIMIT_DEPTH);
        Templates { folder: None, environment: Arc::new(RwLock::new(environment)) }
    }

    /// All files below this folder that end in `.html`, `.txt` or `.xml`, by their paths in it: `posts/show.html`.
    ///
    /// # Errors
    /// When one cannot be read, or is no template.
    pub fn from_folder(folder: impl Into<PathBuf>) -> Result<Templates, Problem> {
        let folder = folder.into();
        let mut templates = Templates::new();
        let mut sources = Vec::new();
        collect(&folder, &folder, &mut sources)?;
        for (name, source) in sources {
            templates.add(name, source)?;
        }
        templates.folder = Some(Arc::new(folder));
        Ok(templates)
    }

    /// One more, or another in the place of one.
    ///
    /// # Errors
    /// When it is no template. Then the old one stays.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        source: impl Into<String>,
    ) -> Result<(), Problem> {
        let mut environment =
            self.environment.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        Ok(environment.add_template_owned(name.into(), source.into())?)
    }

    /// Reads the folder again: all of it, or nothing is changed.
    ///
    /// # Errors
    /// As [`from_folder`](Templates::from_folder).
    pub fn reload(&self) -> Result<(), Problem> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let new = Templates::from_folder(folder.as_path())?;
        let mut new = new.environment.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut old = self.environment.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        std::mem::swap(&mut *old, &mut *new);
        Ok(())
    }

    /// A page.
    ///
    /// # Errors
    /// When there is no such template, or it asks for something that is not there.
    pub fn render(&self, name: &str, context: impl Serialize) -> Result<Html<String>, Problem> {
        let environment = self.read();
        let page = environment.get_template(name)?.render(Serde(context))?;
        Ok(Html(page))
    }

    fn read(&self) -> RwLockReadGuard<'_, Environment<'static>> {
        self.environment.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Default for Templates {
    fn default() -> Templates {
        Templates::new()
    }
}

impl fmt::Debug for Templates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let environment = self.read();
        let mut names: Vec<&str> = environment.templates().map(|(name, _)| name).collect();
        names.sort_unstable();
        f.debug_list().entries(names).finish()
    }
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<(String, String)>) -> Result<(), Problem> {
    for entry in std::fs::read_dir(folder)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        let ending = path.extension().and_then(|ending| ending.to_str());
        if kind.is_dir() {
            collect(root, &path, sources)?;
        } else if matches!(ending, Some("html" | "txt" | "xml"))
            && let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str)
        {
            sources.push((name.to_owned(), std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IntoResponse, Status};
    use proptest::prelude::*;
    use std::fs;

    #[test]
    fn j10_everything_is_escaped_that_is_not_said_to_be_html() {
        let mut templates = Templates::new();
        templates
            .add(
                "a.txt",
                "{{ x }}|{{ x|safe }}|<a href=\"{{ x }}\">{% for y in z %}{{ y }}{% endfor %}",
            )
            .unwrap();
        let Html(page) =
            templates.render("a.txt", context! { x => "<\"'&", z => ["<i>"] }).unwrap();
        assert_eq!(page, "&lt;&quot;&#x27;&amp;|<\"'&|<a href=\"&lt;&quot;&#x27;&amp;\">&lt;i&gt;");
    }

    #[test]
    fn j10_a_template_that_fails_is_500_and_tells_the_client_nothing() {
        let mut templates = Templates::new();
        templates.add("a", "{{ secret_thing.of_mine }}").unwrap();
        templates
            .add(
                "endless",
                "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
            )
            .unwrap();
        templates.add("deep", "{% include 'deep' %}").unwrap();
        assert!(templates.add("b", "{% if %}").is_err());
        for name in ["a", "none", "b", "endless", "deep"] {
            let response = templates.render(name, context! {}).into_response();
            assert_eq!(response.status(), Status::INTERNAL_SERVER_ERROR, "{name}");
            assert_eq!(response.body().as_bytes(), Some(&b"500 Internal Server Error\n"[..]));
        }
    }

    #[test]
    fn j10_a_folder_can_be_read_again() {
        let folder = std::env::temp_dir().join(format!("coracle-templates-{}", std::process::id()));
        fs::create_dir_all(folder.join("posts")).unwrap();
        fs::write(folder.join("base.html"), "<{% block x %}{% endblock %}>").unwrap();
        fs::write(
            folder.join("posts/show.html"),
            "{% extends 'base.html' %}{% block x %}{{ n }}{% endblock %}",
        )
        .unwrap();
        fs::write(folder.join("image.png"), "{{").unwrap();
        let templates = Templates::from_folder(&folder).unwrap();
        assert_eq!(format!("{templates:?}"), r#"["base.html", "posts/show.html"]"#);
        let render = || templates.render("posts/show.html", context! { n => 1 }).unwrap().0;
        assert_eq!(render(), "<1>");
        fs::write(folder.join("base.html"), "[{% block x %}{% endblock %}]").unwrap();
        assert_eq!(render(), "<1>");
        templates.reload().unwrap();
        assert_eq!(render(), "[1]");
        fs::write(folder.join("base.html"), "{% if").unwrap();
        assert!(templates.reload().is_err());
        assert_eq!(render(), "[1]", "nothing has changed");
        fs::remove_dir_all(&folder).unwrap();
    }

    proptest! {
        /// In text and in a quoted attribute, nothing of a value is taken for HTML.
        #[test]
        fn j10_no_value_becomes_html(value in any::<String>()) {
            let mut templates = Templates::new();
            templates.add("a.html", "<p title=\"{{ x }}\" lang='{{ x }}'>{{ x }}</p>").unwrap();
            let Html(page) = templates.render("a.html", context! { x => value }).unwrap();
            prop_assert_eq!(page.matches('<').count(), 2);
            prop_assert_eq!(page.matches('>').count(), 2);
            prop_assert_eq!(page.matches('"').count(), 2);
            prop_assert_eq!(page.matches('\'').count(), 2);
        }
    }
}

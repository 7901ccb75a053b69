//! A web application: a list of things to do for each user, with a log-in, forms, uploads and templates.
//!
//! ```text
//! cargo run --release -p coracle --example 26_todo -- --listen 127.0.0.1:8080
//! xdg-open http://127.0.0.1:8080/
//! curl -i http://127.0.0.1:8080/api/todos        # 401: who are you?
//! ```

use coracle::http::middleware::{
    AccessLog, Compression, ErrorPages, LogFormat, RateLimit, RequestIds, SameOrigin, catch_panics,
};
use coracle::http::{
    self, App, Html, IntoResponse, Json, Plan, Problem, Redirect, Request, Response, Router, Serde,
    SessionKey, Sessions, Status, Templates, context,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn main() -> std::io::Result<()> {
    let address = std::env::args().skip_while(|it| it != "--listen").nth(1);
    let app = app().map_err(|problem| std::io::Error::other(format!("{problem:?}")))?;
    let server = http::Server::bind(address.as_deref().unwrap_or("127.0.0.1:8080"))?;
    server.on_init(|it| println!("todo on {}", it.local_addresses()[0])).serve(app)
}

/// Routes, and what is around them: the first middleware is outermost.
fn app() -> Result<impl App + Send + Sync, Problem> {
    Ok(Router::new(Site::new()?)
        .with(RequestIds::new())
        .with(AccessLog::to_writer(std::io::stdout(), LogFormat::Combined))
        .with(ErrorPages::new())
        .with(catch_panics)
        .with(RateLimit::per_second(50).burst(200))
        .with(SameOrigin::new())
        .with(Compression::new())
        .get("/", Site::index)
        .post("/log-in", Site::log_in)
        .post("/log-out", Site::log_out)
        .post("/todos", Site::add)
        .post("/todos/{number}/done", Site::done)
        .post("/import", Site::import)
        .planned(Plan::default().streamed().limit_body_bytes(16 << 20))
        .nest("/api", |api| api.get("/todos", Site::list)))
}

/// What all handlers share.
struct Site {
    lists: Mutex<HashMap<String, Vec<Todo>>>,
    sessions: Sessions,
    pages: Templates,
}

#[derive(Clone, Serialize)]
struct Todo {
    title: String,
    done: bool,
}

/// So many things a user may have to do, and so many users there may be.
const LIMIT_TODOS: usize = 1000;
const LIMIT_USERS: usize = 10_000;

const INDEX: &str = r#"<!doctype html>
<html lang="en"><meta charset="utf-8"><title>To do</title>
{% if user %}
<form method="post" action="/log-out">{{ user }} <button>log out</button></form>
<ol>{% for todo in todos %}
  <li>{% if todo.done %}<s>{{ todo.title }}</s>{% else %}{{ todo.title }}
  <form method="post" action="/todos/{{ loop.index0 }}/done"><button>done</button></form>{% endif %}
{% endfor %}</ol>
<form method="post" action="/todos"><input name="title" required autofocus> <button>add</button></form>
<form method="post" action="/import" enctype="multipart/form-data">
  <input type="file" name="list"> <button>add all lines of a file</button></form>
{% else %}
<form method="post" action="/log-in"><input name="name" required autofocus> <button>log in</button></form>
{% endif %}
</html>
"#;

impl Site {
    fn new() -> Result<Site, Problem> {
        let mut pages = Templates::new();
        pages.add("index.html", INDEX)?;
        let sessions = Sessions::new("session", SessionKey::generate());
        Ok(Site { lists: Mutex::default(), sessions, pages })
    }

    fn index(&self, req: &Request<'_>) -> Result<Html<String>, Problem> {
        let user = self.user(req).ok();
        let todos = user.as_ref().map(|user| self.todos(user));
        self.pages.render("index.html", context! { user, todos => Serde(todos) })
    }

    /// A name is enough here. Where it is not, check a password: in `offload`, since a good hash takes its time.
    fn log_in(&self, req: &Request<'_>) -> Result<Response, Problem> {
        #[derive(Deserialize)]
        struct LogIn {
            name: String,
        }
        let LogIn { name } = req.form()?;
        if name.is_empty() || name.len() > 64 {
            return Err(Problem::new(Status::BAD_REQUEST, "a name has 1 to 64 letters"));
        }
        Ok(Redirect::to("/").into_response().with_cookie(self.sessions.cookie(&name)?))
    }

    fn log_out(&self, _: &Request<'_>) -> Result<Response, Problem> {
        Ok(Redirect::to("/").into_response().with_cookie(self.sessions.removal()?))
    }

    fn add(&self, req: &Request<'_>) -> Result<Redirect, Problem> {
        let user = self.user(req)?;
        let form = req.form_pairs()?;
        let title =
            form.get("title").ok_or(Problem::new(Status::BAD_REQUEST, "what is to be done?"))?;
        self.push(&user, [title.to_owned()])?;
        Ok(Redirect::to("/"))
    }

    fn done(&self, req: &Request<'_>) -> Result<Option<Redirect>, Problem> {
        let user = self.user(req)?;
        let mut lists = self.lock();
        let number = req.param("number").and_then(|number| number.parse::<usize>().ok());
        let todo = number.and_then(|number| lists.get_mut(&user)?.get_mut(number));
        Ok(todo.map(|todo| {
            todo.done = true;
            Redirect::to("/")
        }))
    }

    /// The file goes to disk while it comes; what is not kept is removed.
    fn import(&self, req: &Request<'_>) -> Result<Redirect, Problem> {
        let user = self.user(req)?;
        let upload = req.multipart()?.save(std::env::temp_dir())?;
        for file in upload.files() {
            let text = coracle::fs::read_to_string(file.path())?;
            self.push(&user, text.lines().map(str::to_owned))?;
        }
        Ok(Redirect::to("/"))
    }

    fn list(&self, req: &Request<'_>) -> Result<Json<Vec<Todo>>, Problem> {
        Ok(Json(self.todos(&self.user(req)?)))
    }

    fn user(&self, req: &Request<'_>) -> Result<String, Problem> {
        self.sessions.read(req).ok_or(Problem::new(Status::UNAUTHORIZED, "who are you?"))
    }

    fn todos(&self, user: &str) -> Vec<Todo> {
        self.lock().get(user).cloned().unwrap_or_default()
    }

    fn push(&self, user: &str, titles: impl IntoIterator<Item = String>) -> Result<(), Problem> {
        let full = || Problem::new(Status::CONFLICT, "there is too much to do");
        let mut lists = self.lock();
        if !lists.contains_key(user) && lists.len() >= LIMIT_USERS {
            return Err(full());
        }
        let todos = lists.entry(user.to_owned()).or_default();
        for title in titles {
            if todos.len() >= LIMIT_TODOS {
                return Err(full());
            }
            todos.push(Todo { title, done: false });
        }
        Ok(())
    }

    /// Held for a few lines, and never while something is waited for.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Todo>>> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An app is tested by calling it: no server, no socket.
#[cfg(test)]
mod tests {
    use super::*;
    use coracle::http::OwnedRequest;

    #[test]
    fn what_was_added_is_listed() {
        let app = app().unwrap();
        let form = |path, body: &'static str| {
            let request = OwnedRequest::new("POST", path);
            request
                .with_header("content-type", "application/x-www-form-urlencoded")
                .unwrap()
                .with_body(body)
        };
        let answer = app.call(&form("/log-in", "name=ahab").request());
        let cookie =
            answer.headers().get("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let add = form("/todos", "title=find+the+<whale>").with_header("cookie", &cookie).unwrap();
        assert_eq!(app.call(&add.request()).status(), Status::SEE_OTHER);
        let list = OwnedRequest::new("GET", "/api/todos").with_header("cookie", &cookie).unwrap();
        let answer = app.call(&list.request());
        assert_eq!(
            answer.body().as_bytes(),
            Some(&br#"[{"title":"find the <whale>","done":false}]"#[..])
        );
        let index = OwnedRequest::new("GET", "/").with_header("cookie", &cookie).unwrap();
        let page = app.call(&index.request());
        let page = String::from_utf8_lossy(page.body().as_bytes().unwrap()).into_owned();
        assert!(page.contains("find the &lt;whale&gt;"), "{page}");
        let nobody = app.call(&OwnedRequest::new("GET", "/api/todos").request());
        assert_eq!(nobody.status(), Status::UNAUTHORIZED);
    }
}

//! Rows J8 and J9: what is sent in bodies and cookies.

use crate::client::{Answer, Client};
use crate::harness::Harness;
use coracle_http::middleware::SameOrigin;
use coracle_http::{
    Cookie, IntoResponse, Json, MultipartLimits, Plan, Problem, Redirect, Request, Response,
    Router, SessionKey, Sessions, Settings, Status,
};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Whale {
    name: String,
    teeth: u8,
}

fn post(client: &Client<'_>, target: &str, kind: &str, body: &[u8]) -> Answer {
    let length = body.len();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    );
    client.send(head);
    client.send(body);
    client.answer()
}

pub(crate) fn j8_form_and_json_are_values(h: &Harness) {
    let app = Router::new(())
        .post("/form", |_, req| req.form::<Whale>().map(Json))
        .post("/json", |_, req| req.json::<Whale>().map(Json))
        .get("/query", |_, req| req.query_as::<Whale>().map(Json));
    let client = Client::of(h, app);
    let expected = r#"{"name":"Moby Dick","teeth":50}"#;
    let form = "application/x-www-form-urlencoded";
    assert_eq!(post(&client, "/form", form, b"name=Moby+Dick&teeth=50").text(), expected);
    assert_eq!(post(&client, "/json", "application/json", expected.as_bytes()).text(), expected);
    assert_eq!(client.get("/query?teeth=50&name=Moby%20Dick").text(), expected);
    assert_eq!(post(&client, "/form", form, b"name=a&teeth=many").status, 400);
    assert_eq!(post(&client, "/json", "application/json", b"{").status, 400);
    assert_eq!(post(&client, "/json", form, b"{}").status, 415);
    assert_eq!(client.get("/query").status, 400);
}

fn folder(h: &Harness, name: &str) -> PathBuf {
    let unique = format!("coracle-apps-{name}-{}-{}", h.backend, std::process::id());
    let folder = std::env::temp_dir().join(unique);
    fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

/// Files are written and removed on threads of the pool.
fn until_there_are(h: &Harness, folder: &PathBuf, files: usize) {
    while fs::read_dir(folder).expect("the folder is there").count() != files {
        h.run_for(Duration::from_millis(1));
    }
}

/// An app that keeps one file of an upload, and forgets the others.
fn uploads(folder: PathBuf) -> Router<PathBuf> {
    fn upload(folder: &PathBuf, req: &Request<'_>) -> Result<String, Problem> {
        let limits = MultipartLimits { limit_part_bytes: 300_000, ..MultipartLimits::default() };
        let mut upload = req.multipart()?.limits(limits).save(folder)?;
        let told = format!("{:?} and {} files", upload.field("title"), upload.files().len());
        let first = upload.take_files().into_iter().next();
        first.ok_or(Problem::new(Status::BAD_REQUEST, "no file"))?.keep(folder.join("kept"))?;
        Ok(told)
    }
    let plan = Plan::default().streamed().limit_body_bytes(10 << 20);
    Router::new(folder).post("/", upload).planned(plan)
}

fn part(head: &str, data: &[u8]) -> Vec<u8> {
    let head = format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n");
    [head.as_bytes(), data, b"\r\n"].concat()
}

pub(crate) fn j8_upload_goes_to_disk_while_it_comes(h: &Harness) {
    let folder = folder(h, "upload");
    let client = Client::of(h, uploads(folder.clone()));
    let data: Vec<u8> = (0..250_000_u32).map(|n| (n % 251) as u8).collect();
    let mut body = part("name=\"title\"", b"the whale");
    body.extend(part("name=\"f\"; filename=\"../../x\"", &data));
    body.extend(part("name=\"g\"; filename=\"y\"", b"forgotten"));
    body.extend_from_slice(b"--b--\r\n");
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
    );
    for piece in body.chunks(33_333) {
        client.send(format!("{:x}\r\n", piece.len()));
        client.send(piece);
        client.send("\r\n");
        h.run_for(Duration::from_millis(1));
    }
    client.send("0\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text()), (200, "Some(\"the whale\") and 2 files"));
    assert_eq!(fs::read(folder.join("kept")).expect("it was kept"), data);
    until_there_are(h, &folder, 1); // the other is removed on a thread of the pool
    fs::remove_dir_all(&folder).expect("it is ours");
}

pub(crate) fn j8_upload_that_breaks_off_leaves_nothing(h: &Harness) {
    let folder = folder(h, "broken");
    let client = Client::of(h, uploads(folder.clone()));
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: 1000000\r\n\r\n",
    );
    client.send(part("name=\"f\"; filename=\"x\"", &[b'x'; 100_000]));
    until_there_are(h, &folder, 1);
    client.end();
    until_there_are(h, &folder, 0);
    fs::remove_dir_all(&folder).expect("it is ours");
}

pub(crate) fn j8_upload_that_is_too_long_is_refused_while_it_comes(h: &Harness) {
    let folder = folder(h, "long");
    let client = Client::of(h, uploads(folder.clone()));
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: 9000000\r\n\r\n",
    );
    client.send(part("name=\"f\"; filename=\"x\"", &[b'x'; 300_001]));
    assert_eq!(client.answer().status, 413, "long before the rest has come");
    until_there_are(h, &folder, 0);
    fs::remove_dir_all(&folder).expect("it is ours");
}

struct Site {
    sessions: Sessions,
}

impl Site {
    fn log_in(&self, req: &Request<'_>) -> Result<Response, Problem> {
        let form = req.form_pairs()?;
        let name = form.get("name").ok_or(Problem::new(Status::BAD_REQUEST, "who are you?"))?;
        let theme = Cookie::new("theme", "dark")?.visible_to_scripts();
        Ok(Redirect::to("/")
            .into_response()
            .with_cookie(self.sessions.cookie(&name)?)
            .with_cookie(theme))
    }

    fn index(&self, req: &Request<'_>) -> String {
        let user: Option<String> = self.sessions.read(req);
        format!("{user:?} likes it {:?}", req.cookie("theme"))
    }

    fn log_out(&self, _: &Request<'_>) -> Result<Response, Problem> {
        Ok(Redirect::to("/").into_response().with_cookie(self.sessions.removal()?))
    }
}

pub(crate) fn j9_session_lasts_over_requests(h: &Harness) {
    let app = Router::new(Site { sessions: Sessions::new("s", SessionKey::generate()) })
        .with(SameOrigin::new())
        .get("/", Site::index)
        .post("/log-in", Site::log_in)
        .post("/log-out", Site::log_out);
    let client = Client::with(h, Settings::default(), app);
    assert_eq!(client.get("/").text(), "None likes it None");
    let answer = post(&client, "/log-in", "application/x-www-form-urlencoded", b"name=ahab");
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    let set: Vec<&str> =
        answer.head.lines().filter_map(|line| line.strip_prefix("set-cookie: ")).collect();
    assert_eq!(set.len(), 2, "{}", answer.head);
    assert!(set[0].contains("; HttpOnly; SameSite=Lax") && !set[1].contains("HttpOnly"), "{set:?}");
    let cookies: Vec<&str> =
        set.iter().map(|line| line.split(';').next().expect("a pair")).collect();
    let ask = |cookies: &str| {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nCookie: {cookies}\r\n\r\n"));
        client.answer().text().to_owned()
    };
    assert_eq!(ask(&cookies.join("; ")), "Some(\"ahab\") likes it Some(\"dark\")");
    assert_eq!(ask(&cookies[0].replace("s=", "s=A")), "None likes it None", "a forged one is none");

    client.send("POST /log-out HTTP/1.1\r\nHost: a\r\nOrigin: https://evil.example\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.answer().status, 403);
    let answer = post(&client, "/log-out", "text/plain", b"");
    assert!(answer.header("set-cookie").expect("it is removed").contains("Max-Age=0"));
}

//! Saying what an answer depends on.

use crate::Response;

/// Adds a name to `Vary`, unless it is there or everything is.
pub(crate) fn add(response: &mut Response, name: &'static str) {
    let headers = response.headers_mut();
    if headers.has_token("vary", name) || headers.has_token("vary", "*") {
        return;
    }
    // Several fields are one list.
    headers.append("vary", name).expect("the name of a header is a value");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IntoResponse, Status};

    #[test]
    fn j11_a_name_is_added_once() {
        let mut response = Status::OK.into_response().with_header("Vary", "cookie, Origin");
        add(&mut response, "origin");
        add(&mut response, "accept-encoding");
        add(&mut response, "accept-encoding");
        assert_eq!(
            response.headers().get_all("vary").collect::<Vec<_>>(),
            ["cookie, Origin", "accept-encoding"]
        );
        let mut response = Status::OK.into_response().with_header("Vary", "*");
        add(&mut response, "origin");
        assert_eq!(response.headers().get_all("vary").count(), 1);
    }
}

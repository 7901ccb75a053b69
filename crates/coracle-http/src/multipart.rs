//! Forms with files in them: `multipart/form-data`, read while they come, files straight to disk.

pub(crate) mod parser;
mod save;

pub use self::save::{SavedFile, Upload};

use self::parser::{Event, Parser, PartHead, Refused};
use crate::h1::Refusal;
use crate::{BodyReader, MediaType, Problem, Request, Status};
use bytes::{Buf, BytesMut};
use std::fmt;
use std::io::{self, Read};

/// Read from a body at a time.
const READ_BYTES: usize = 32 << 10;

/// What a form with files may be like; more is answered with 413. How long the whole of it may be is said by the
/// route: [`Plan::limit_body_bytes`](crate::Plan::limit_body_bytes).
///
/// ```
/// use coracle_http::MultipartLimits;
///
/// let videos = MultipartLimits { limit_part_bytes: 4 << 30, ..MultipartLimits::default() };
/// # let _ = videos;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MultipartLimits {
    /// How many parts: fields and files.
    pub limit_parts: usize,
    /// How long the header of a part.
    pub limit_head_bytes: usize,
    /// How long one part.
    pub limit_part_bytes: u64,
    /// How long all that is read into memory as text: [`Part::text`], and the fields of [`Multipart::save`]
    /// together.
    pub limit_text_bytes: usize,
}

impl Default for MultipartLimits {
    fn default() -> MultipartLimits {
        MultipartLimits {
            limit_parts: 256,
            limit_head_bytes: 4 << 10,
            limit_part_bytes: 64 << 20,
            limit_text_bytes: 1 << 20,
        }
    }
}

impl Request<'_> {
    /// A form with files that was sent as the body, part by part, as it comes. In a route that
    /// [streams](crate::Plan::streamed) it need never be in memory as a whole.
    ///
    /// ```
    /// use coracle_http::{Plan, Problem, Request, Router, Status};
    ///
    /// fn upload(_: &(), req: &Request<'_>) -> Result<(Status, String), Problem> {
    ///     let mut upload = req.multipart()?.save("/var/lib/photos/incoming")?;
    ///     for (number, photo) in upload.take_files().into_iter().enumerate() {
    ///         photo.keep(format!("/var/lib/photos/{number}.jpg"))?; // what is not kept is removed
    ///     }
    ///     let title = upload.field("title").unwrap_or("without a title");
    ///     Ok((Status::CREATED, format!("{title}\n")))
    /// }
    ///
    /// let app = Router::new(())
    ///     .post("/photos", upload).planned(Plan::default().streamed().limit_body_bytes(100 << 20));
    /// # let _ = app;
    /// ```
    ///
    /// # Errors
    /// 415 when the body is no such form, 400 when its boundary is none.
    pub fn multipart(&self) -> Result<Multipart<'_>, Problem> {
        let kind = self.header("content-type").and_then(MediaType::parse);
        let Some(kind) = kind.filter(|kind| kind.is("multipart/form-data")) else {
            let outward = "send a form with files: multipart/form-data";
            return Err(Problem::new(Status::UNSUPPORTED_MEDIA_TYPE, outward));
        };
        let limits = MultipartLimits::default();
        let boundary = kind.param("boundary").unwrap_or_default();
        let parser = Parser::new(&boundary, limits).map_err(refused)?;
        Ok(Multipart {
            boundary,
            parser,
            limits,
            body: self.body_reader(),
            piece: BytesMut::new(),
            buffer: Vec::new(),
            ended: false,
        })
    }
}

/// The parts of a form, one after the other.
///
/// ```
/// use coracle_http::{OwnedRequest, Problem, Request};
///
/// fn upload(req: &Request<'_>) -> Result<String, Problem> {
///     let mut form = req.multipart()?;
///     let mut told = String::new();
///     while let Some(mut part) = form.next_part()? {
///         let bytes = std::io::copy(&mut part, &mut std::io::sink())?;
///         told += &format!("{}: {bytes} bytes\n", part.name());
///     }
///     Ok(told)
/// }
///
/// let body = "--x\r\nContent-Disposition: form-data; name=\"a\"; filename=\"a.txt\"\r\n\r\nahoy\r\n--x--\r\n";
/// let request = OwnedRequest::new("POST", "/")
///     .with_header("Content-Type", "multipart/form-data; boundary=x")?
///     .with_body(body);
/// assert_eq!(upload(&request.request()).unwrap(), "a: 4 bytes\n");
/// # Ok::<(), coracle_http::HeaderError>(())
/// ```
pub struct Multipart<'r> {
    boundary: String,
    parser: Parser,
    limits: MultipartLimits,
    body: BodyReader<'r>,
    /// Data of the part that has not been read.
    piece: BytesMut,
    buffer: Vec<u8>,
    /// All parts have come.
    ended: bool,
}

impl<'r> Multipart<'r> {
    /// With other limits.
    #[must_use]
    pub fn limits(mut self, limits: MultipartLimits) -> Multipart<'r> {
        // Nothing was read yet, or it would not be here.
        if let Ok(parser) = Parser::new(&self.boundary, limits) {
            self.parser = parser;
        }
        self.limits = limits;
        self
    }

    /// The next part; what is left of the one before is passed over. None when there are no more.
    ///
    /// # Errors
    /// 400 when the body is not what it should be or ends too early, 413 when a limit is met.
    pub fn next_part(&mut self) -> Result<Option<Part<'_, 'r>>, Problem> {
        self.piece.clear();
        loop {
            if self.ended {
                return Ok(None);
            }
            match self.step()? {
                Step::Part(head) => return Ok(Some(Part { form: self, head, ended: false })),
                Step::Data => self.piece.clear(),
                Step::PartEnd => {}
                Step::End => self.ended = true,
            }
        }
    }

    /// Reads all of it: fields into memory, files into this folder, under names of our own.
    ///
    /// # Errors
    /// As [`next_part`](Multipart::next_part); 500 when a file cannot be written. Then nothing is left of it.
    pub fn save(mut self, folder: impl AsRef<std::path::Path>) -> Result<Upload, Problem> {
        save::save(&mut self, folder.as_ref())
    }

    /// What comes next; data is put into `piece`.
    fn step(&mut self) -> Result<Step, Problem> {
        loop {
            match self.parser.next().map_err(refused)? {
                Event::Part(head) => return Ok(Step::Part(head)),
                Event::Data(data) => {
                    self.piece.extend_from_slice(data);
                    return Ok(Step::Data);
                }
                Event::PartEnd => return Ok(Step::PartEnd),
                Event::End => return Ok(Step::End),
                Event::More => {}
            }
            self.buffer.resize(READ_BYTES, 0);
            let count = self.body.read(&mut self.buffer).map_err(unreadable)?;
            if count == 0 {
                self.parser.finish().map_err(refused)?;
            }
            self.parser.push(&self.buffer[..count]);
        }
    }
}

enum Step {
    Part(PartHead),
    Data,
    PartEnd,
    End,
}

impl fmt::Debug for Multipart<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A part of a form: a field, or a file. It is read as it comes.
pub struct Part<'m, 'r> {
    form: &'m mut Multipart<'r>,
    head: PartHead,
    ended: bool,
}

impl Part<'_, '_> {
    /// The name of the field.
    pub fn name(&self) -> &str {
        &self.head.name
    }

    /// What the client calls the file, if it is one. Anything may be in it: show it, but never use it as a path.
    pub fn file_name(&self) -> Option<&str> {
        self.head.file_name.as_deref()
    }

    /// What the client says it is.
    pub fn content_type(&self) -> Option<&str> {
        self.head.content_type.as_deref()
    }

    /// All of it, as text. What is not UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// As [`Multipart::next_part`]; 413 when it is longer than
    /// [`limit_text_bytes`](MultipartLimits::limit_text_bytes).
    pub fn text(&mut self) -> Result<String, Problem> {
        let limit = self.form.limits.limit_text_bytes;
        self.text_up_to(limit)
    }

    fn text_up_to(&mut self, limit: usize) -> Result<String, Problem> {
        let mut bytes = Vec::new();
        while self.fill()? {
            if bytes.len() + self.form.piece.len() > limit {
                return Err(refused(Refused::PartTooLong));
            }
            bytes.extend_from_slice(&self.form.piece);
            self.form.piece.clear();
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether there is data of it in `piece`, which is fetched if there is none.
    fn fill(&mut self) -> Result<bool, Problem> {
        while self.form.piece.is_empty() && !self.ended {
            // Between a part and its end there is only data.
            if let Step::PartEnd | Step::End = self.form.step()? {
                self.ended = true;
            }
        }
        Ok(!self.form.piece.is_empty())
    }
}

impl Read for Part<'_, '_> {
    /// # Errors
    /// `InvalidData` when the form is refused: [`Multipart::next_part`] says why.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self
            .fill()
            .map_err(|problem| io::Error::new(io::ErrorKind::InvalidData, problem.to_string()))?
        {
            return Ok(0);
        }
        let piece = &mut self.form.piece;
        let count = piece.len().min(into.len());
        into[..count].copy_from_slice(&piece[..count]);
        piece.advance(count);
        Ok(count)
    }
}

impl fmt::Debug for Part<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head.fmt(f)
    }
}

fn refused(why: Refused) -> Problem {
    let status = if why.is_too_much() { Status::PAYLOAD_TOO_LARGE } else { Status::BAD_REQUEST };
    Problem::new(status, format!("the form cannot be read: {why}"))
}

fn unreadable(error: io::Error) -> Problem {
    let status = match error.kind() {
        io::ErrorKind::TimedOut => Status::REQUEST_TIMEOUT,
        io::ErrorKind::FileTooLarge => Status::PAYLOAD_TOO_LARGE,
        _ => Refusal::of(&error).map_or(Status::BAD_REQUEST, |refusal| refusal.status),
    };
    Problem::new(status, "the form did not come to its end").because(error)
}

#[cfg(test)]
mod tests;

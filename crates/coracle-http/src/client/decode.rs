//! Bodies that are sent compressed. Feature `compression`.

use std::io::{self, Read};

/// What is said to be understood.
pub(super) const ACCEPTED: &str = "gzip, br, zstd";

/// A body, and what decodes it.
pub(super) enum Decoder<R: Read> {
    Plain(R),
    #[cfg(feature = "compression")]
    Gzip(Box<flate2::read::MultiGzDecoder<R>>),
    #[cfg(feature = "compression")]
    Brotli(Box<brotli::Decompressor<R>>),
    #[cfg(feature = "compression")]
    Zstd(Box<zstd::stream::read::Decoder<'static, io::BufReader<R>>>),
}

impl<R: Read> Decoder<R> {
    /// For a coding, as a header tells it. One that is not known is left as it is.
    #[cfg_attr(not(feature = "compression"), allow(clippy::unnecessary_wraps))]
    pub(super) fn new(coding: Option<&str>, raw: R) -> io::Result<Decoder<R>> {
        #[cfg(feature = "compression")]
        if let Some(coding) = coding {
            return Ok(match coding.trim().to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => {
                    Decoder::Gzip(Box::new(flate2::read::MultiGzDecoder::new(raw)))
                }
                "br" => Decoder::Brotli(Box::new(brotli::Decompressor::new(raw, 4096))),
                "zstd" => {
                    let mut decoder = zstd::stream::read::Decoder::new(raw)?;
                    decoder.window_log_max(LIMIT_WINDOW_LOG)?;
                    Decoder::Zstd(Box::new(decoder))
                }
                _ => Decoder::Plain(raw),
            });
        }
        let _ = coding;
        Ok(Decoder::Plain(raw))
    }

    pub(super) fn raw(&self) -> &R {
        match self {
            Decoder::Plain(raw) => raw,
            #[cfg(feature = "compression")]
            Decoder::Gzip(decoder) => decoder.get_ref(),
            #[cfg(feature = "compression")]
            Decoder::Brotli(decoder) => decoder.get_ref(),
            #[cfg(feature = "compression")]
            Decoder::Zstd(decoder) => decoder.get_ref().get_ref(),
        }
    }

    pub(super) fn raw_mut(&mut self) -> &mut R {
        match self {
            Decoder::Plain(raw) => raw,
            #[cfg(feature = "compression")]
            Decoder::Gzip(decoder) => decoder.get_mut(),
            #[cfg(feature = "compression")]
            Decoder::Brotli(decoder) => decoder.get_mut(),
            #[cfg(feature = "compression")]
            Decoder::Zstd(decoder) => decoder.get_mut().get_mut(),
        }
    }
}

/// A server may not have us hold more than 8 MiB for it (RFC 9659).
#[cfg(feature = "compression")]
const LIMIT_WINDOW_LOG: u32 = 23;

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoder::Plain(raw) => raw.read(into),
            #[cfg(feature = "compression")]
            _ => self.decode(into),
        }
    }
}

#[cfg(feature = "compression")]
impl<R: Read> Decoder<R> {
    fn decode(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = match self {
            Decoder::Plain(raw) => raw.read(into),
            Decoder::Gzip(decoder) => decoder.read(into),
            Decoder::Brotli(decoder) => decoder.read(into),
            Decoder::Zstd(decoder) => decoder.read(into),
        }?;
        // What was sent must be over as well: chunks have an end of their own.
        if count == 0 && !into.is_empty() && self.raw_mut().read(&mut [0])? > 0 {
            let text = "there is something behind a compressed body";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(count)
    }
}

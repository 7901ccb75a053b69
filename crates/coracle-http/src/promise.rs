//! A length that was promised for a body that is written while it is sent.

use std::io;

/// How much is missing of it; nothing, if none was promised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise(pub(crate) Option<u64>);

impl Promise {
    /// So many bytes more are written.
    ///
    /// # Errors
    /// `InvalidInput`: they are too many.
    pub(crate) fn count(&mut self, bytes: usize) -> io::Result<()> {
        if let Some(left) = &mut self.0 {
            *left = left.checked_sub(bytes as u64).ok_or_else(|| {
                io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "more bytes than the length that was promised",
                )
            })?;
        }
        Ok(())
    }

    /// Everything is written.
    ///
    /// # Errors
    /// `UnexpectedEof`: it was too little.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self.0 {
            Some(left @ 1..) => {
                let text = format!("{left} bytes are missing of the length that was promised");
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
            }
            _ => Ok(()),
        }
    }
}

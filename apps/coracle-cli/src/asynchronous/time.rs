//! `coracle time --style async`.

use super::Service;
use super::stop::Stopping;
use crate::space::Space;
use crate::time::{HEAD_BYTES, Head};
use coracle::future::net::{ReadHalf, WriteHalf};
use futures::AsyncWriteExt;
use std::io;

/// `[2026-11-15 20:15:00]server reply: ` and what was received, byte for byte.
#[derive(Clone)]
pub(crate) struct Time;

impl Service for Time {
    async fn serve(
        &self,
        mut reader: ReadHalf,
        mut writer: WriteHalf,
        stop: &Stopping,
    ) -> io::Result<()> {
        let (mut space, mut head) = (Space::new(), Head::default());
        // The head goes in front of the message, so that both are sent at once.
        while let Some(count) = stop.read(&mut reader, &mut space.get()[HEAD_BYTES..]).await? {
            head.write_to(&mut space.get()[..HEAD_BYTES])?;
            writer.write_all(&space.get()[..HEAD_BYTES + count]).await?;
            if space.used(HEAD_BYTES + count) {
                head = Head::default();
            }
        }
        stop.finish(&mut reader, &mut writer, &mut space).await
    }
}

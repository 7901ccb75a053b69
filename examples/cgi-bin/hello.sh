#!/bin/sh
# A script of CGI: what it is told is in its environment, what it prints is the answer.
echo "Content-Type: text/plain; charset=utf-8"
echo
echo "Hello, ${PATH_INFO#/}: you come from $REMOTE_ADDR and ask \"$QUERY_STRING\"."
if [ "${CONTENT_LENGTH:-0}" -gt 0 ]; then
    echo "You have sent $(wc -c | tr -d ' ') bytes."
fi

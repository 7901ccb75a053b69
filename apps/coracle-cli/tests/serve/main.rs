//! `coracle serve` and `coracle check`, as their users see them: a black box with sockets, files, a command
//! line and a log, on every backend.

mod access_log;
mod browser;
mod cgi;
mod client;
mod command_line;
mod configuration;
mod curl;
mod documents;
mod first_steps;
mod hosts;
mod idle;
mod limits;
mod privileges;
#[path = "../echo/program.rs"]
#[allow(dead_code)] // what only an echo server needs
mod program;
mod proxying;
mod reload;
mod site;
mod stop;
mod tls;
mod traversal;

macro_rules! suite {
    ($backend:ident: $($file:ident :: { $($case:ident),* $(,)? })*) => {
        mod $backend {
            $($(
                #[test]
                fn $case() {
                    crate::$file::$case(stringify!($backend));
                }
            )*)*
        }
    };
    ($($backend:ident),*) => {
        $(suite! {
            $backend:
            first_steps::{
                r2_index_is_served,
                r2_welcome_page_shows_what_serves,
                n5_listing_is_there_when_it_is_asked_for,
                n5_head_options_and_other_methods,
                n4_ranges,
                n3_what_the_client_has_is_not_sent_again,
                n6_precompressed_siblings,
                n1_large_file_comes_whole,
                n5_directory_without_its_slash_is_redirected,
                j14_error_pages,
                j1_old_clients_and_pipelining,
            }
            curl::{
                n4_curl_gets_files_parts_and_heads,
                n4_curl_resumes_a_download,
            }
            site::{
                n2_hidden_files_and_links,
                j11_compression_when_it_is_asked_for,
                n5_cache_control_and_content_types,
                q1_redirects,
            }
            cgi::{
                o1_scripts_of_a_directory_answer,
                o1_scripts_of_the_configuration_answer,
                o2_fastcgi_of_the_configuration_answers,
                o1_source_is_not_shown_however_the_path_is_escaped,
            }
            hosts::{
                j7_each_host_has_its_own_site,
                j7_host_that_nobody_is_for_is_refused,
            }
            proxying::{
                j15_what_is_below_a_path_is_handed_on,
                j15_proxies_of_the_file_are_used,
                j15_upstreams_by_https_are_who_they_should_be,
            }
            traversal::{
                n2_nothing_outside_is_ever_sent,
            }
            access_log::{
                j14_lines_of_every_format,
                j14_what_clients_send_cannot_forge_a_line,
                j14_request_ids_are_in_answer_and_log,
                j14_refused_requests_are_logged_and_have_their_page,
            }
            limits::{
                q5_address_with_too_many_connections_is_turned_away,
                q5_limits_of_the_file_are_kept,
                j13_http2_is_spoken_unless_the_file_says_no,
                q5_descriptor_limit_is_raised,
                q5_no_privileges_can_be_gained,
            }
            privileges::{
                q5_root_listens_and_nobody_serves,
                q5_workers_are_nobody_too,
                q5_no_core_files_are_written,
            }
            reload::{
                q1_sighup_reads_the_configuration_again,
                q1_wrong_configuration_is_refused_and_the_old_one_stays,
                j14_sighup_opens_the_access_log_again,
                q1_limits_and_timeouts_are_those_of_new_connections,
                q1_connections_outlive_a_reload,
                q1_reload_under_load_loses_no_request,
            }
            idle::{
                b4_idle_server_sleeps,
            }
            tls::{
                m1_curl_is_served_by_both_versions,
                m1_openssl_is_refused_a_renegotiation,
                m1_who_comes_without_tls_is_redirected,
                m2_hosts_have_their_certificates_and_clients_theirs,
                m2_check_says_what_is_wrong_with_a_file,
                m2_key_among_the_files_is_not_served,
                m3_sighup_reads_certificates_again,
                m3_port_of_the_redirect_is_never_served_in_clear,
                m3_key_that_is_kept_is_not_served,
                m5_self_signed_certificate_is_made,
            }
            stop::{
                q4_answer_under_way_is_finished,
                q1_several_listens,
            }
        })*
    };
}

suite!(uring, epoll, poll, select);

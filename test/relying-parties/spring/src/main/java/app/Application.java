package app;

import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.core.annotation.AuthenticationPrincipal;
import org.springframework.security.oauth2.client.oidc.authentication.OidcIdTokenDecoderFactory;
import org.springframework.security.oauth2.client.registration.ClientRegistration;
import org.springframework.security.oauth2.core.oidc.user.OidcUser;
import org.springframework.security.oauth2.jose.jws.SignatureAlgorithm;
import org.springframework.security.oauth2.jwt.JwtDecoderFactory;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/**
 * A relying party: Spring Boot with the OAuth2 client of Spring Security, used as documented.
 *
 * <p>Reads its registrations from SPRING_APPLICATION_JSON and shows the identity that it received.
 */
@SpringBootApplication
@RestController
public class Application {
  /** A registration with this name keeps the algorithm that Spring Security expects by default. */
  private static final String WITHOUT_SETTING = "plain";

  public static void main(String[] args) {
    SpringApplication.run(Application.class, args);
  }

  @Bean
  JwtDecoderFactory<ClientRegistration> idTokenDecoderFactory() {
    var factory = new OidcIdTokenDecoderFactory();
    factory.setJwsAlgorithmResolver(
        registration ->
            registration.getRegistrationId().equals(WITHOUT_SETTING)
                ? SignatureAlgorithm.RS256
                : SignatureAlgorithm.ES256);
    return factory;
  }

  @Bean
  SecurityFilterChain security(HttpSecurity http) throws Exception {
    return http.authorizeHttpRequests(requests -> requests.anyRequest().authenticated())
        .oauth2Login(
            login ->
                login
                    .defaultSuccessUrl("/", true)
                    .failureHandler(
                        (request, response, exception) -> {
                          response.setStatus(401);
                          response.getWriter().print(exception.getMessage());
                        }))
        .build();
  }

  @GetMapping("/")
  Map<String, Object> identity(@AuthenticationPrincipal OidcUser user) {
    return Map.of("claims", user.getIdToken().getClaims(), "userinfo", user.getUserInfo().getClaims());
  }
}
